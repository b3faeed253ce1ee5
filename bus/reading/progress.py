"""The protocol state of a reader, without a connection, an event loop or a clock.

A consumer numbers its deliveries across all subjects, so a jump in that number is a gap. The stream sequence shows
whether a message was already returned. Arriving messages and the statuses that end requests reduce the number of
messages still requested. Times are seconds of any monotonic clock.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bus.reading import tap
from bus.reading.setback import Mark

HOLE = "hole"
HEARTBEATS = 2.5  # heartbeats per expiry; also the number of missed heartbeats after which a consumer is given up
NUDGES = 2  # times that a leased reader repeats its requests before it resets the consumer

_DELIVERY = b"$JS.ACK."

# Subject, reply, payload, headers.
Arrival = tuple[bytes, bytes, bytes, bytes | None]


class Received(NamedTuple):
    """One stored message: its subject in the stream, stream sequence, payload, and when the server stored it."""

    subject: str
    sequence: int
    data: bytes
    stored_us: int = 0


class Accepted(NamedTuple):
    """Result of `Progress.accept`.

    Attributes:
        messages: Messages in order, up to the first gap.
        broken: Reason to replace the consumer; empty: it is in order.
        lost: The server's text if another reader has the lease; empty: it has not.
    """

    messages: list[Received]
    broken: str = ""
    lost: str = ""


def delivery(reply: bytes) -> tuple[int, int, int, int]:
    """Return what the reply subject of a delivery says.

    Returns:
        Stream sequence, consumer sequence, number of pending messages, and when the server stored it in microseconds.

    >>> delivery(b"$JS.ACK.S.c.1.17.4.1700000000.9"), delivery(b"$JS.ACK.dom.hash.S.c.1.17.4.1700000000.9.x")
    ((17, 4, 9, 1700000), (17, 4, 9, 1700000))
    """
    tokens = reply.split(b".")
    start = 5 if len(tokens) == 9 else 7
    return int(tokens[start]), int(tokens[start + 1]), int(tokens[start + 3]), int(tokens[start + 2]) // 1000


class Progress:
    """Protocol state of one reader and its consumer.

    Attributes:
        position: Sequence of the last message returned.
        stored_us: When the server stored it, in microseconds; 0: not known.
        pending: Number of messages behind it when it was sent; -1: not known yet.
        round: Number of times that open requests were given up and repeated; reply subjects contain it.
        asked_at: Time of the last request.
    """

    def __init__(self, after: Mark, *, pending: int, batch: int, heartbeat_seconds: float, nudges: int) -> None:
        """Start without a consumer.

        Args:
            after: Message before the first.
            pending: Number of messages behind it; -1: not known.
            batch: Messages per request; the next request is due when half of them have arrived.
            heartbeat_seconds: Interval of the server's heartbeats while it sends no message.
            nudges: Times to repeat a request after silence before the consumer is given up.
        """
        (self.position, self.stored_us), self.pending, self.round = after, pending, 0
        self.asked_at = self._heard_at = 0.0
        self._half, self._silence, self._most_nudges = batch // 2, HEARTBEATS * heartbeat_seconds, nudges
        self._counted = self._wanted = self._nudges = 0

    @property
    def mark(self) -> Mark:
        """The last message returned."""
        return Mark(self.position, self.stored_us)

    @property
    def silent_at(self) -> float:
        """Time at which the consumer counts as silent, unless something arrives."""
        return self._heard_at + self._silence

    @property
    def due(self) -> bool:
        """Whether another request is due."""
        return self._wanted <= self._half

    @property
    def wanted(self) -> int:
        """Number of messages that were asked for and have not come."""
        return self._wanted

    def skip(self, mark: Mark) -> None:
        """Continue behind a later message; the consumer has to be reset to it."""
        self.position, self.stored_us = mark

    def open(self, now: float) -> None:
        """Start with a new consumer after the position, or with one that was reset to it."""
        self._counted = self._wanted = self._nudges = 0
        self._heard_at = self.asked_at = now

    def hear(self, now: float) -> None:
        """Record that something has arrived."""
        self._heard_at, self._nudges = now, 0

    def ask(self, count: int, now: float) -> None:
        """Record a request."""
        self._wanted += count
        self.asked_at = now

    def nudge(self, now: float) -> bool:
        """Give up the open requests after silence; False: the limit is reached, and the consumer must be replaced."""
        if self._nudges == self._most_nudges:
            return False
        self._nudges += 1
        self._wanted, self.round = 0, self.round + 1
        self._heard_at = now
        return True

    def has_all(self, sent: int) -> bool:
        """Tell whether as many messages were returned as the consumer has sent."""
        return sent <= self._counted

    def accept(self, arrivals: Sequence[Arrival], check: Callable[[bytes | None], None] | None = None) -> Accepted:
        """Check arrivals, and return the messages that are in order.

        Args:
            arrivals: In the order of their arrival.
            check: Called with the headers of each message; raises if the message was not sent under this lease.
        """
        messages: list[Received] = []
        for subject, reply, data, headers in arrivals:
            # A stored message may have any header; only status messages of the server have no such reply subject.
            if not reply.startswith(_DELIVERY):
                broken, lost = self._status(subject, tap.fields(headers))
                if broken or lost:
                    return Accepted(messages, broken, lost)
                continue
            if check is not None:
                check(headers)
            sequence, count, self.pending, stored_us = delivery(reply)
            # A late reset by a standby, before the first message, shows only in the stream sequence.
            if count != self._counted + 1 or sequence <= self.position:
                return Accepted(messages, HOLE)
            self._counted = count
            self._wanted -= 1
            self.position, self.stored_us = sequence, stored_us
            messages.append(Received(subject.decode(errors="replace"), sequence, data, stored_us))
        return Accepted(messages)

    def _status(self, subject: bytes, headers: dict[str, str]) -> tuple[str, str]:
        """Process a status message; return `broken` and `lost` of `Accepted`."""
        status, text = headers["Status"], headers["Description"]
        if status == "100":
            return ("", "") if int(headers.get("Nats-Last-Consumer", 0)) <= self._counted else (HOLE, "")
        if status == "423":
            return "", text or status
        if status in ("404", "408") or (status == "409" and "Consumer Deleted" not in text):
            # Messages of requests that were given up are not counted any more.
            if subject.endswith(b".%d" % self.round):
                self._wanted = max(0, self._wanted - int(headers.get("Nats-Pending-Messages", self._wanted)))
            return "", ""
        return f"{status} {text}", ""
