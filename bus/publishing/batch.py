"""Stores rows and their cursor, all or nothing: the server's atomic batch with compare-and-swap.

The cursor is the last message of the batch. It carries the sequence that its subject must still have. A replica that
folded from an outdated cursor gets `Fenced`, and none of its rows is stored.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.js import api
from nats.js.errors import NotFoundError
from prometheus_client import Counter

from bus.api import WRONG_LAST_SEQUENCE, Refused
from bus.health import UNSTORED
from bus.link import Connection
from bus.publishing.bounds import excess
from bus.stream import Stored

log = logging.getLogger(__name__)

MAXIMUM_ROWS = 999
MAXIMUM_BYTES = 8 << 20  # of the payloads of a batch, so that a slow link stores it within an attempt
# Error codes: too many batches are begun and not ended; of a batch that was not let in for this, its commit alone came.
# A server whose disk is full or slow answers so too: it does not end what is begun, and loses parts.
_CROWDED = (10210, 10176)
_UNENDED = (
    "the NATS server refuses batches for {}: parts of them were lost, or as many as it takes are begun and not ended. "
    "Most likely its disk is full or slow, or it has just restarted: its log says so. If not, a stolen credential of "
    "a role that may publish there could be the cause (docs/security.md)"
)
_EXPECTED = api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value
_RETRY_SECONDS = 0.2
_ATTEMPT_SECONDS = 2.0  # an answer lost in a failover never arrives; a second attempt is harmless

RETRIED = Counter("spazio_batches_retried_total", "atomic batches sent again because no answer came")


class Fenced(RuntimeError):
    """Another replica has moved the cursor; rows folded from the old one are discarded."""


class Row(NamedTuple):
    """One message of a batch; `ttl_seconds` 0: kept as long as others. The subject is ASCII without a space."""

    subject: str
    payload: bytes
    ttl_seconds: int = 0


async def last(client: Client, stream: str, subject: str, timeout_seconds: float = 5) -> Stored:
    """Return the newest message of a subject."""
    try:
        message = await client.jetstream(timeout=timeout_seconds).get_msg(stream, subject=subject, direct=True)
    except NotFoundError:
        return Stored(b"", 0)
    return Stored(message.data or b"", message.seq or 0)


async def swap(client: Client, row: Row, expected: int, timeout_seconds: float) -> int:
    """Store one message, if its subject still has the expected sequence.

    Returns:
        Sequence of the message.

    Raises:
        Fenced: The subject has another sequence.
        Refused: The server refused it, or would: its subject or payload is too large.
        BusError: It may or may not be stored; also TimeoutError.
    """
    if (limit := excess(row.subject, len(row.payload), client.max_payload)) is not None:
        raise Refused(limit.reason, 0)
    headers = {_EXPECTED: str(expected)}
    if row.ttl_seconds:
        headers[api.Header.MSG_TTL.value] = str(row.ttl_seconds)
    reply = await client.request(row.subject, row.payload, timeout=timeout_seconds, headers=headers)
    answer = json.loads(reply.data)
    if "error" in answer:
        error = answer["error"]
        if error.get("err_code") in WRONG_LAST_SEQUENCE:
            raise Fenced(f"{row.subject} is not at {expected} any more")
        raise Refused(error.get("description", "no reason given"), error.get("err_code", 0))
    sequence: int = answer["seq"]
    return sequence


class Batch(NamedTuple):
    """Rows and the cursor behind them; `expected` is the last sequence of the cursor's subject, 0: it has none."""

    rows: Sequence[Row]
    cursor: Row
    expected: int

    @property
    def messages(self) -> int:
        """Number of messages."""
        return len(self.rows) + 1

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(len(row.payload) for row in self.rows) + len(self.cursor.payload)


async def publish(
    client: Client,
    stream: str,
    rows: Sequence[Row],
    cursor: Row,
    expected: int,
    *,
    timeout_seconds: float,
    doubtful: bool = False,
) -> int:
    """Store rows and cursor in one atomic batch, sent again until the server answers; return the cursor's sequence.

    Args:
        client: Connection.
        stream: Stream of all the subjects; it allows atomic batches.
        rows: At most `MAXIMUM_ROWS`.
        cursor: Last message of the batch; its payload differs from all earlier ones of its subject.
        expected: Last sequence of the cursor's subject; 0: none.
        timeout_seconds: Time limit for one attempt.
        doubtful: An attempt without an answer was made before, so the batch may be stored.

    Raises:
        Fenced: The cursor's subject has another sequence.
        MaxPayloadError: A row is too large for the server that the client is connected to now; see `bounds`.
        ValueError: There are too many rows.
    """
    check(rows)
    while True:
        try:
            if doubtful:
                await asyncio.sleep(_RETRY_SECONDS)
                if (sequence := await _stored_already(client, stream, cursor, expected)) is not None:
                    return sequence
                doubtful = False
            (sequence,) = await attempt(client, stream, [Batch(rows, cursor, expected)], timeout_seconds)
        except Fenced:
            # If the cursor has expired from its stream, no other replica has moved it.
            if doubtful or not expected or (await last(client, stream, cursor.subject)).sequence:
                raise
            expected = 0
        except nats.errors.MaxPayloadError:
            raise
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.debug("batch.retried", extra={"stream": stream, "reason": repr(error)})
            doubtful = True
            RETRIED.inc()
        else:
            return sequence


async def _stored_already(client: Client, stream: str, cursor: Row, expected: int) -> int | None:
    """Return the sequence of a cursor that is stored although its answer was lost; None: it is not stored.

    Raises:
        Fenced: Its subject has another cursor than before.
        BusError: The server did not answer; also TimeoutError.
    """
    stored = await last(client, stream, cursor.subject)
    if stored.payload == cursor.payload:
        return stored.sequence
    if stored.sequence != expected:
        raise Fenced(f"{cursor.subject} is at {stored.sequence}, not at {expected}")
    return None


def check(rows: Sequence[Row]) -> None:
    """Refuse more rows than fit one batch with a cursor.

    Raises:
        ValueError: There are too many.
    """
    if len(rows) > MAXIMUM_ROWS:
        raise ValueError(f"{len(rows)} rows do not fit one atomic batch of {MAXIMUM_ROWS} and its cursor")


async def attempt(client: Client, stream: str, batches: Sequence[Batch], timeout_seconds: float) -> list[int]:
    """Store several batches as one, all or nothing, and return the sequences of their cursors.

    Args:
        client: Connection.
        stream: Stream of all the subjects; it allows atomic batches.
        batches: With at most `MAXIMUM_ROWS` + 1 messages together; each has another cursor.
        timeout_seconds: Time limit.

    Raises:
        Fenced: The subject of a cursor has another sequence; nothing is stored.
        MaxPayloadError: A row is too large for the server; nothing is stored.
        BusError: They may or may not be stored; also TimeoutError.
    """
    identity = client.new_inbox().rsplit(".", 1)[-1]
    if not client.is_connected:
        raise nats.errors.ConnectionReconnectingError
    cursor, expected = batches[-1].cursor, batches[-1].expected
    # The client's own `publish` checks and builds each message separately, which costs several times as much. The
    # request below also flushes these frames.
    await client._send_command(_frames(batches, identity, client.max_payload))  # noqa: SLF001 # see above
    total = sum(batch.messages for batch in batches)
    headers = {api.Header.BATCH_ID.value: identity, api.Header.BATCH_SEQUENCE.value: str(total)}
    if cursor.ttl_seconds:
        headers[api.Header.MSG_TTL.value] = str(cursor.ttl_seconds)
    headers[api.Header.BATCH_COMMIT.value] = "1"
    headers[_EXPECTED] = str(expected)
    headers[api.Header.EXPECTED_STREAM.value] = stream
    limit = min(timeout_seconds, _ATTEMPT_SECONDS)
    reply = await client.request(cursor.subject, cursor.payload, timeout=limit, headers=headers)
    answer: Mapping[str, object] = json.loads(reply.data)
    error = answer.get("error")
    _note(client, stream, error)
    if isinstance(error, dict):
        if error.get("err_code") in WRONG_LAST_SEQUENCE:
            raise Fenced(
                " or ".join(f"{batch.cursor.subject} is not at {batch.expected} any more" for batch in batches)
            )
        raise nats.errors.Error(f"batch refused: {error}")
    newest = answer["seq"]
    assert isinstance(newest, int)  # a positive acknowledgement always has it
    before = newest - total
    return [before + end for end in accumulate(batch.messages for batch in batches)]


def unstored(client: Client) -> str:
    """Return why batches of this connection are not stored, as far as the server's last answers say."""
    crowded = sorted(client.crowded) if isinstance(client, Connection) else []
    return _UNENDED.format(", ".join(crowded)) if crowded else UNSTORED


def _note(client: Client, stream: str, error: object) -> None:
    """Note whether a stream refuses batches, since too many are not ended or parts of this one were lost."""
    if not isinstance(client, Connection):
        return
    if isinstance(error, dict) and error.get("err_code") in _CROWDED:
        client.crowded.add(stream)
    else:
        client.crowded.discard(stream)


def _frames(batches: Sequence[Batch], identity: str, largest: int) -> bytes:
    """Return the protocol frames of all messages but the last cursor."""
    begin = f"NATS/1.0\r\n{api.Header.BATCH_ID.value}: {identity}\r\n{api.Header.BATCH_SEQUENCE.value}: "
    frames: list[bytes] = []
    for number, (row, expected) in enumerate(_messages(batches), 1):
        subject, payload, ttl_seconds = row
        expiry = f"{api.Header.MSG_TTL.value}: {ttl_seconds}\r\n" if ttl_seconds else ""
        condition = "" if expected is None else f"{_EXPECTED}: {expected}\r\n"
        header = f"{begin}{number}\r\n{expiry}{condition}\r\n"
        whole = len(header) + len(payload)
        if whole > largest:
            raise nats.errors.MaxPayloadError
        frames += (f"HPUB {subject} {len(header)} {whole}\r\n{header}".encode(), payload, b"\r\n")
    return b"".join(frames)


def _messages(batches: Sequence[Batch]) -> Iterator[tuple[Row, int | None]]:
    """Yield all messages but the last cursor, each with the sequence that its subject must have, if it is a cursor."""
    for position, batch in enumerate(batches, 1):
        yield from ((row, None) for row in batch.rows)
        if position < len(batches):
            yield batch.cursor, batch.expected
