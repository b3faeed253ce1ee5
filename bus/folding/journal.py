"""Stores the rows of a fold together with the input sequence that they cover."""

import logging
from collections.abc import Sequence

from nats.aio.client import Client
from nats.js import api
from nats.js.errors import APIError, NotFoundError

from bus.api import WRONG_LAST_SEQUENCE
from bus.publishing import batch, coverage
from bus.publishing.batch import Fenced, Row
from bus.publishing.group_commit import GroupCommit
from bus.reading import setback
from bus.reading.setback import Mark, SetBack
from bus.stream import Stream
from schemas import codec
from schemas.messages.estimate import Cursor

log = logging.getLogger(__name__)

_CURSOR = "Spazio-Cursor"
_STORED = "Spazio-Cursor-Stored"  # when the server stored that input, in microseconds


class Batches:
    """Stores rows, and a cursor message after them, in one atomic batch."""

    most = batch.MAXIMUM_ROWS

    def __init__(
        self, client: Client, stream: str, subject: str, *, timeout_seconds: float, group: GroupCommit | None = None
    ) -> None:
        """Describe where rows go.

        Args:
            client: Connection.
            stream: Stream of the rows.
            subject: Subject of the cursor in it.
            timeout_seconds: Time limit for one attempt.
            group: What stores them together with those of other tasks; None: a group of its own.
        """
        self._client, self._stream, self._subject, self._timeout = client, stream, subject, timeout_seconds
        self._group = group or GroupCommit(client, stream)
        self._expected = self.partial = 0

    async def covered(self, source: Stream) -> int:
        """Return the input sequence up to which rows are stored; 0: none."""
        stored = await coverage.covered(self._client, self._stream, self._subject, source)
        self._expected, self.partial = stored.expected, stored.partial
        return stored.sequence

    async def commit(
        self, rows: Sequence[Row], source: Stream, sequence: int, stored_us: int = 0, partial: int = 0
    ) -> None:
        """Store rows and cursor.

        Raises:
            Fenced: Another replica has moved the cursor.
        """
        cursor = Cursor(
            stream=source.name,
            created=source.identity,
            sequence=sequence,
            stored_us=stored_us or None,
            partial=partial or None,
        )
        row = Row(self._subject, codec.encode(cursor))
        self._expected = await self._group.publish(rows, row, self._expected, timeout_seconds=self._timeout)


class Singles:
    """Stores one row at a time with its cursor in a header; for a stream without atomic batches."""

    most = 1
    partial = 0

    def __init__(self, client: Client, stream: str, subject: str, *, timeout_seconds: float) -> None:
        """Name the stream, and the only subject of its rows."""
        self._client, self._stream, self._subject, self._timeout = client, stream, subject, timeout_seconds
        self._expected = 0

    async def covered(self, source: Stream) -> int:
        """Return the input sequence in the cursor of the newest row; 0: there is no row.

        Rows without a cursor are skipped. If no row has a cursor, all input counts as covered: rows of a version that
        wrote no cursors are not repeated.
        """
        newest = (await batch.last(self._client, self._stream, self._subject)).sequence
        self._expected = newest
        if not newest:
            return 0
        position = await self._cursor(newest, source)
        if position is not None:
            return position
        log.warning("cursor.set_aside", extra={"subject": self._subject, "sequence": newest})
        rows = coverage.up_to(self._client, self._stream, self._subject, newest)
        for sequence in reversed([row.sequence async for row in rows]):
            if (position := await self._cursor(sequence, source)) is not None:
                return position
        return source.last

    async def _cursor(self, sequence: int, source: Stream) -> int | None:
        """Return the input sequence in a row's cursor, 0 if that is of another input; None: it has no cursor."""
        try:
            row = await self._client.jetstream(timeout=self._timeout).get_msg(self._stream, sequence, direct=True)
        except NotFoundError:
            return None
        headers = row.headers or {}
        identity, _, covered = headers.get(_CURSOR, "").partition(":")
        if not covered.isdecimal():
            return None
        if identity != source.identity:
            return 0
        stored = headers.get(_STORED, "")
        if not stored.isdecimal() or not int(stored):
            return int(covered) if int(covered) <= source.last else 0
        try:
            await setback.check(self._client, source.name, Mark(int(covered), int(stored)), self._timeout)
        except SetBack as error:
            log.warning("cursor.set_back", extra={"stream": source.name, "reason": str(error)})
            return error.kept.sequence
        return int(covered)

    async def commit(
        self, rows: Sequence[Row], source: Stream, sequence: int, stored_us: int = 0, partial: int = 0
    ) -> None:
        """Store the row.

        Raises:
            Fenced: Another replica has stored a row since.
            ValueError: There is more than one row, or the row is one of several of a message.
            nats.errors.Error: It may or may not be stored; `covered` finds out. Also TimeoutError.
        """
        (row,) = rows
        if partial:
            raise ValueError(f"{partial} rows of one message do not fit into one row")
        headers = {
            api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(self._expected),
            _CURSOR: f"{source.identity}:{sequence}",
            _STORED: str(stored_us),
        }
        js = self._client.jetstream(timeout=self._timeout)
        try:
            self._expected = (await js.publish(row.subject, row.payload, headers=headers)).seq
        except APIError as error:
            if error.err_code in WRONG_LAST_SEQUENCE:
                raise Fenced(f"{row.subject} is not at {self._expected} any more") from error
            raise


async def drop_beyond(client: Client, stream: str, subject: str, source: Stream, *, timeout_seconds: float) -> int:
    """Delete the newest rows of `Singles` that were made from messages behind the end of their input.

    A backup takes the two streams one after the other, so the second may have rows of which the first has no cause yet.
    They are made again as soon as the causes are.

    Returns:
        Number of rows deleted.

    Raises:
        nats.errors.Error: The server refuses; also TimeoutError.
    """
    js, dropped = client.jetstream(timeout=timeout_seconds), 0
    while True:
        newest = (await batch.last(client, stream, subject)).sequence
        if not newest:
            return dropped
        row = await js.get_msg(stream, newest)
        identity, _, covered = (row.headers or {}).get(_CURSOR, "").partition(":")
        if identity != source.identity or not covered.isdecimal() or int(covered) <= source.last:
            return dropped
        await js.delete_msg(stream, newest)
        dropped += 1
