"""What a reader knows of its consumer, and what follows from it: without a connection, an event loop or a clock.

A consumer numbers what it sends, whatever subjects lie in between, so a jump in that number is a hole. The stream's
own sequence says whether a message was handed out before. Requests are counted down by what arrives and by the
statuses that end them. Times are seconds of any clock that never goes back.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bus.reading import tap

HOLE = "hole"
HEARTBEATS = 2.5  # in an expiry, and missed before the consumer is given up
NUDGES = 2  # of a lease's requests, made anew before its consumer is set back

_DELIVERY = b"$JS.ACK."

# Subject, reply, payload, headers.
Arrival = tuple[bytes, bytes, bytes, bytes | None]


class Received(NamedTuple):
    """One stored message: the subject it is stored under, its stream sequence, its payload."""

    subject: str
    sequence: int
    data: bytes


class Accepted(NamedTuple):
    """What arrived in order.

    Attributes:
        messages: Up to what broke the order, if anything did.
        broken: Why the consumer has to be made anew; empty: it does not.
        lost: What the server says where another reader has the lease; empty: it does not say so.
    """

    messages: list[Received]
    broken: str = ""
    lost: str = ""


def delivery(reply: bytes) -> tuple[int, int, int]:
    """Return (place in the stream, place in what the consumer sent, messages behind it) from a delivery's reply.

    >>> delivery(b"$JS.ACK.S.c.1.17.4.1700000000.9"), delivery(b"$JS.ACK.dom.hash.S.c.1.17.4.1700000000.9.x")
    ((17, 4, 9), (17, 4, 9))
    """
    tokens = reply.split(b".")
    start = 5 if len(tokens) == 9 else 7
    return int(tokens[start]), int(tokens[start + 1]), int(tokens[start + 3])


class Progress:
    """One reader's account of its consumer.

    Attributes:
        position: Sequence of the last message handed out.
        pending: Messages that were behind it when it was sent; -1: not known yet.
        round: Number of times that requests were given up and made anew; their replies carry it.
        asked_at: Time of the last request.
    """

    def __init__(self, after: int, *, pending: int, batch: int, heartbeat_seconds: float, nudges: int) -> None:
        """Begin without a consumer.

        Args:
            after: Sequence before the first message.
            pending: Messages behind it, -1: not known.
            batch: Messages that a request asks for; another is due when half of them have come.
            heartbeat_seconds: Time between the server's signs of life while nothing is sent.
            nudges: Requests made anew in silence before the consumer is given up.
        """
        self.position, self.pending, self.round = after, pending, 0
        self.asked_at = self._heard_at = 0.0
        self._half, self._silence, self._most_nudges = batch // 2, HEARTBEATS * heartbeat_seconds, nudges
        self._counted = self._wanted = self._nudges = 0

    @property
    def silent_at(self) -> float:
        """Time at which silence is too long, unless something arrives."""
        return self._heard_at + self._silence

    @property
    def due(self) -> bool:
        """More is to be asked for."""
        return self._wanted <= self._half

    def open(self, now: float) -> None:
        """Begin with a new consumer behind the position, or with one that was set back to it."""
        self._counted = self._wanted = self._nudges = 0
        self._heard_at = self.asked_at = now

    def hear(self, now: float) -> None:
        """Take note that anything has arrived."""
        self._heard_at, self._nudges = now, 0

    def ask(self, count: int, now: float) -> None:
        """Take note of a request."""
        self._wanted += count
        self.asked_at = now

    def nudge(self, now: float) -> bool:
        """Forget the requests that stand open, after a silence; False: there were enough, give the consumer up."""
        if self._nudges == self._most_nudges:
            return False
        self._nudges += 1
        self._wanted, self.round = 0, self.round + 1
        self._heard_at = now
        return True

    def has_all(self, sent: int) -> bool:
        """Tell whether as many were handed out as the consumer has sent."""
        return sent <= self._counted

    def accept(self, arrivals: Sequence[Arrival], check: Callable[[bytes | None], None] | None = None) -> Accepted:
        """Put in order what has arrived.

        Args:
            arrivals: As they came.
            check: Called with the headers of each message; raises if it did not come under our lease.
        """
        messages: list[Received] = []
        for subject, reply, data, headers in arrivals:
            # A stored message may carry any header; only what the server makes itself has no such reply.
            if not reply.startswith(_DELIVERY):
                broken, lost = self._status(subject, tap.fields(headers))
                if broken or lost:
                    return Accepted(messages, broken, lost)
                continue
            if check is not None:
                check(headers)
            sequence, count, self.pending = delivery(reply)
            # A standby's reset that comes late, before the first message, shows in the place alone.
            if count != self._counted + 1 or sequence <= self.position:
                return Accepted(messages, HOLE)
            self._counted = count
            self._wanted -= 1
            self.position = sequence
            messages.append(Received(subject.decode(errors="replace"), sequence, data))
        return Accepted(messages)

    def _status(self, subject: bytes, headers: dict[str, str]) -> tuple[str, str]:
        """Act on a status message; returns what is broken, and what is said of a lost lease."""
        status, text = headers["Status"], headers["Description"]
        if status == "100":
            return ("", "") if int(headers.get("Nats-Last-Consumer", 0)) <= self._counted else (HOLE, "")
        if status == "423":
            return "", text or status
        if status in ("404", "408") or (status == "409" and "Consumer Deleted" not in text):
            # What was asked for before we asked anew is not counted any more.
            if subject.endswith(b".%d" % self.round):
                self._wanted = max(0, self._wanted - int(headers.get("Nats-Pending-Messages", self._wanted)))
            return "", ""
        return f"{status} {text}", ""
