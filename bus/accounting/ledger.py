"""The ledger of a service: what it has read in the last hour, and what became of it.

Each reader of a stream has an account. It counts every message that arrives under `received`, and afterwards every one
under an outcome, such as `folded` or `refused`. The counts are kept by minute for an hour, so their size is bounded. An
account adds up if each received message has an outcome; an account of a whole stream also adds up only if the sequences
that it has passed are as many as the messages it has received and those that it knows to be gone.
"""

import time
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Counter

MINUTES = 60
RECEIVED = "received"
EXPIRED = "expired"
_UNKNOWN = -1
_LONGEST = 200  # of a name that another program sent

FLOW = Counter("spazio_flow_total", "messages or rows by what became of them", ["account", "stream", "outcome"])


class Statement(NamedTuple):
    """An account over the last hour.

    Attributes:
        account: Name of the reader, and of the unit if it is not messages: `history`, `history rows`.
        stream: Stream that it reads.
        begin: Sequence after which the counts begin; -1: not known.
        end: Sequence up to which messages were received.
        whole: It receives all messages of the stream, so that a missing sequence is a missing message.
        received: Number of messages, or of rows.
        outcomes: Number by what became of them.
        waiting: Number that have no outcome yet.
        since_us: When the counts begin, in microseconds since the epoch.
    """

    account: str
    stream: str
    begin: int
    end: int
    whole: bool
    received: int
    outcomes: Mapping[str, int]
    waiting: int
    since_us: int


class _Minute:
    def __init__(self, number: int, begin: int, waiting: int) -> None:
        self.number, self.begin, self.waiting = number, begin, waiting
        self.counts: Tally[str] = Tally()


class Account:
    """Counts of one reader, by minute."""

    def __init__(self, name: str, stream: str, *, whole: bool = False, clock: Callable[[], float] = time.time) -> None:
        """Open an account; `whole` as in `Statement`, `clock` returns Unix time in seconds."""
        self.name, self.stream, self.whole = name, stream, whole
        self._clock = clock
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)
        self._end, self._waiting = _UNKNOWN, 0

    def resume(self, position: int) -> None:
        """Continue at another position of the stream; earlier sequences do not count any more.

        Args:
            position: Sequence of the last message before; 0: the next message is the first.
        """
        self._end = position or _UNKNOWN
        for minute in self._minutes:
            minute.begin = _UNKNOWN
        if self._minutes:
            self._minutes[-1].begin = self._end

    def receive(self, count: int, last: int = 0) -> None:
        """Record messages that have arrived, the last one with a sequence; 0: sequences are not counted.

        Sequences of a whole stream that were jumped over are recorded as expired.
        """
        minute = self._minute()
        if last:
            if self._end == _UNKNOWN:
                self._end = minute.begin = last - count
            if self.whole and last - self._end > count:
                self.add(EXPIRED, last - self._end - count)
            self._end = max(self._end, last)
        if count:
            minute.counts[RECEIVED] += count
            self._waiting += count
            FLOW.labels(self.name, self.stream, RECEIVED).inc(count)

    def add(self, outcome: str, count: int = 1) -> None:
        """Record what became of messages."""
        if count:
            self._minute().counts[outcome] += count
            FLOW.labels(self.name, self.stream, outcome).inc(count)
            if outcome != EXPIRED:
                self._waiting -= count

    def _minute(self) -> _Minute:
        number = int(self._clock() // 60)
        if not self._minutes or self._minutes[-1].number != number:
            self._minutes.append(_Minute(number, self._end, self._waiting))
        return self._minutes[-1]

    def statement(self) -> Statement:
        """Return the counts of the last hour."""
        since = int(self._clock() // 60) - MINUTES + 1
        minutes = [minute for minute in self._minutes if minute.number >= since]
        counts: Tally[str] = sum((minute.counts for minute in minutes), Tally())
        received = counts.pop(RECEIVED, 0)
        # Received before, so that its outcome has no counterpart.
        carried = minutes[0].waiting if minutes else self._waiting
        begin = next((minute.begin for minute in minutes if minute.begin != _UNKNOWN), _UNKNOWN)
        return Statement(
            self.name,
            self.stream,
            begin,
            max(0, self._end),
            self.whole,
            received + carried,
            dict(counts),
            self._waiting,
            60_000_000 * (minutes[0].number if minutes else since),
        )


class Ledger:
    """All accounts of a process."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str], Account] = {}

    def account(self, name: str, stream: str, *, whole: bool = False) -> Account:
        """Return the account of that name, and open it if there is none."""
        return self._accounts.setdefault((name, stream), Account(name, stream, whole=whole))

    def statements(self) -> list[Statement]:
        """Return all accounts over the last hour."""
        return [account.statement() for account in self._accounts.values()]


LEDGER = Ledger()  # of this process, as its metrics are


def parse(content: Mapping[str, Any]) -> Statement:
    """Read a statement that came as JSON.

    Raises:
        ValueError: It is none.
    """
    try:
        outcomes = {bounded(name): int(count) for name, count in content["outcomes"].items()}
        numbers = {name: int(content[name]) for name in ("begin", "end", "received", "waiting", "since_us")}
        return Statement(
            account=bounded(content["account"]),
            stream=bounded(content["stream"]),
            whole=bool(content["whole"]),
            outcomes=outcomes,
            **numbers,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no statement of an account: {error!r}") from error


def bounded(name: object) -> str:
    """Return a name from outside, not too long; it may hold any characters, so they are escaped where it is shown."""
    return str(name)[:_LONGEST]


def faults(statement: Statement) -> list[str]:
    """Return where an account does not add up.

    >>> faults(Statement("cache", "S", 10, 15, True, 4, {"taken": 3, "expired": 1}, 0, 0))
    ['1 of 4 received is unaccounted for']
    """
    shortfalls = []
    expired = statement.outcomes.get(EXPIRED, 0)
    rest = statement.received - sum(statement.outcomes.values()) + expired - statement.waiting
    if rest:
        shortfalls.append(f"{rest} of {statement.received} received {'is' if rest == 1 else 'are'} unaccounted for")
    if statement.whole and statement.begin != _UNKNOWN:
        passed, counted = statement.end - statement.begin, expired + statement.received
        if passed > counted:
            shortfalls.append(f"{passed - counted} of {passed} sequences were neither received nor expired")
    return shortfalls
