"""Dead letters: unusable messages, stored unchanged with the reason, for inspection.

The id of a dead letter contains stream and sequence of the original, so that it is stored once even if several
consumers refuse it within `nats.duplicate_window_seconds`; one that comes to it later stores another. An original of
the server's maximum payload leaves no space for headers; it is stored in numbered parts, which concatenated are the
original. Storing a letter costs more than folding a block, and the stream is small, so the letters of each node have a
budget in bytes. What does not suffice for a large letter is used for its beginning, and without any left a letter is
only counted.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus.reading.progress import Received
from schemas.subject import Names, is_subject, kind_and_node

log = logging.getLogger(__name__)

_HEADER_SPACE = 4096
_LONGEST_REASON = 1000
_LONGEST_SUBJECT = 500  # a longer one and its inbox would exceed the protocol's control line
_RETRY_SECONDS = 0.5

_LEAST_BYTES = 5 << 10  # what a letter counts at least: storing a small one costs the server as much
_BURST_BYTES = 256 * _LEAST_BYTES  # of letters of one node and consumer at once; one of the largest payload is whole
_BYTES_PER_SECOND = 20 * _LEAST_BYTES
_CUT_BYTES = 4 << 10  # of a message that is not stored whole
_NODES = 4096  # whose letters are counted; a new one begins with a whole burst

UNKEPT = Counter(
    "spazio_dead_letters_unkept_total",
    "refused messages of which no dead letter was stored: too many came of one node",
    ["consumer", "kind"],
)
CUT = Counter(
    "spazio_dead_letters_cut_total",
    "dead letters that hold only the beginning of the message: too many bytes came of one node",
    ["consumer", "kind"],
)
DEAD = Counter("spazio_dead_letters_total", "messages refused by a consumer", ["consumer", "kind"])


class Letter(NamedTuple):
    """A message that cannot be used or published.

    Attributes:
        subject: Subject on which it came, or would have been published.
        payload: Its bytes.
        reason: Why, for people.
        consumer: Name of the service that refuses it.
        identity: Message id, the same each time that this message is buried.
        original_bytes: Size of the message if `payload` is only its beginning; 0: it is whole.
    """

    subject: str
    payload: bytes
    reason: str
    consumer: str
    identity: str
    original_bytes: int = 0


class Budget:
    """How many bytes of letters of each node may be stored: a burst, and then so many a second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a whole burst for every node."""
        self._clock = clock
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def take(self, consumer: str, node: str, size_bytes: int) -> int | None:
        """Return how many bytes of a message of this size may be stored, and count them; None: no letter."""
        now = self._clock()
        left, at = self._left.pop((consumer, node), (float(_BURST_BYTES), now))
        left = min(_BURST_BYTES, left + (now - at) * _BYTES_PER_SECOND)
        stored = size_bytes if size_bytes <= left else min(size_bytes, _CUT_BYTES)
        cost = max(stored, _LEAST_BYTES)
        enough = cost <= left
        self._left[consumer, node] = (left - cost if enough else left, now)
        if len(self._left) > _NODES:
            self._left.popitem(last=False)
        return stored if enough else None


_BUDGET = Budget()
_FAILURES = set[str]()  # why letters were not stored since the last that was


def original_subject(names: Names, subject: str) -> str:
    """Return the subject on which a message was published, given its stored subject."""
    if subject.startswith(names.of("part", "")):
        return names.of(*kind_and_node(subject))
    return subject


async def bury(
    client: Client, names: Names, consumer: str, stream: str, message: Received, reason: str, *, timeout_seconds: float
) -> None:
    """Store a refused message under `<prefix>.dead.<its subject>`; wait until it is stored.

    If too many bytes came of its node, only its beginning is stored, or it is only counted, and not logged. What is of
    no node goes by the last token of its subject.

    Args:
        client: Connection.
        names: Subjects in use.
        consumer: Name of the consumer that refuses it.
        stream: Stream of the message.
        message: The message.
        reason: Reason of the refusal, for people.
        timeout_seconds: Time limit for one attempt.
    """
    subject, (kind, node) = original_subject(names, message.subject), kind_and_node(message.subject)
    DEAD.labels(consumer, kind).inc()
    size_bytes = len(message.data)
    stored_bytes = _BUDGET.take(consumer, node, size_bytes)
    if stored_bytes is None:
        UNKEPT.labels(consumer, kind).inc()
        return
    log.info("message.refused", extra={"subject": subject, "sequence": message.sequence, "reason": reason[:200]})
    letter = Letter(subject, message.data[:stored_bytes], reason, consumer, f"dead:{stream}:{message.sequence}")
    if stored_bytes < size_bytes:
        CUT.labels(consumer, kind).inc()
        letter = letter._replace(original_bytes=size_bytes)
    await store(client, names, letter, timeout_seconds=timeout_seconds)


async def bury_all(
    client: Client,
    names: Names,
    consumer: str,
    stream: str,
    refused: Sequence[tuple[Received, str]],
    *,
    timeout_seconds: float,
) -> None:
    """Bury messages, each with its reason, together: one after the other, a burst of garbage would hold up the rest."""
    await asyncio.gather(
        *(
            bury(client, names, consumer, stream, message, reason, timeout_seconds=timeout_seconds)
            for message, reason in refused
        )
    )


async def store(client: Client, names: Names, letter: Letter, *, timeout_seconds: float) -> None:
    """Store a dead letter, in parts if it is too large; wait until it is stored."""
    subject = letter.subject
    fits = len(subject) <= _LONGEST_SUBJECT and is_subject(subject)
    letter_subject = names.dead(subject) if fits else names.of("dead", "long")
    room = client.max_payload - _HEADER_SPACE
    parts = [letter.payload]
    if len(letter.payload) > room:
        parts = [letter.payload[start : start + room] for start in range(0, len(letter.payload), room)]
    for number, part in enumerate(parts, 1):
        headers = {
            "Nats-Msg-Id": letter.identity + (f":{number}" if number > 1 else ""),
            "Spazio-Error": _header(letter.reason),
            "Spazio-Consumer": letter.consumer,
            "Spazio-Subject": _header(subject),
        }
        if letter.original_bytes:
            headers["Spazio-Cut"] = f"{len(letter.payload)}/{letter.original_bytes}"
        if len(parts) > 1:
            headers["Spazio-Part"] = f"{number}/{len(parts)}"
        await _store(client, letter_subject, part, headers, timeout_seconds)


def _header(text: str) -> str:
    """Return text as the value of a header: one line of ASCII, not too long, never empty."""
    return " ".join(text.split())[:_LONGEST_REASON].encode("ascii", "replace").decode() or "-"


async def _store(client: Client, subject: str, payload: bytes, headers: dict[str, str], timeout_seconds: float) -> None:
    js = client.jetstream(timeout=timeout_seconds)
    while True:
        try:
            await js.publish(subject, payload, headers=dict(headers))
        except (nats.errors.Error, TimeoutError, OSError) as error:
            # Many letters wait for the same server.
            level = logging.DEBUG if repr(error) in _FAILURES else logging.WARNING
            _FAILURES.add(repr(error))
            log.log(level, "dead_letter.store_failed", extra={"reason": str(error)})
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            _FAILURES.clear()
            return
