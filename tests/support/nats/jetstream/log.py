"""The messages of one stream: by sequence, by subject, within limits of age, size and number."""

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.nats import subject as subjects
from tests.support.nats.message import Stored
from tests.support.nats.subject import Filter


class Log:
    """Stored messages in order; removal leaves holes, and sequences are never used again."""

    def __init__(self, clock_ns: Callable[[], int], removed: Callable[[Stored], None]) -> None:
        """Make an empty log.

        Args:
            clock_ns: Nanoseconds since the epoch, by which messages grow old.
            removed: Called with every message that goes.
        """
        self._clock_ns, self._removed = clock_ns, removed
        self._messages: dict[int, Stored] = {}
        self._subjects: dict[str, dict[int, None]] = {}
        self._ends: list[tuple[int, int]] = []
        self.last = 0
        self.last_ns = 0
        self.bytes = 0
        self.max_age_ns = self.max_bytes = self.max_messages = self.max_each = 0
        self._emptied = 0

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take over limits and enforce them; less than 1 is no limit."""
        self.max_age_ns, self.max_bytes = config["max_age"], config["max_bytes"]
        self.max_messages, self.max_each = config["max_msgs"], config["max_msgs_per_subject"]
        for subject in list(self._subjects):
            self._thin(subject)
        self.shrink()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def first(self) -> int:
        """Lowest sequence stored; behind the last one where all are gone, 0 before the first."""
        return next(iter(self._messages), self._emptied)

    @property
    def counts(self) -> dict[str, int]:
        """Number of messages by subject."""
        return self.counted(">")

    def counted(self, pattern: str) -> dict[str, int]:
        """Return the number of messages of each matching subject."""
        return {subject: len(numbers) for subject, numbers in self._matching(pattern)}

    def append(self, subject: str, headers: bytes, data: bytes, lifetime_seconds: int) -> Stored:
        """Store a message behind all others."""
        self.last += 1
        self.last_ns = now = self._clock_ns()
        ends = now + lifetime_seconds * 10**9 if lifetime_seconds else 0
        message = Stored(subject, self.last, now, headers, data, ends)
        self._messages[self.last] = message
        self._subjects.setdefault(subject, {})[self.last] = None
        self._emptied = self.last + 1
        self.bytes += message.size
        if ends:
            heapq.heappush(self._ends, (ends, self.last))
        self._thin(subject)
        self.shrink()
        return message

    def _thin(self, subject: str) -> None:
        while self.max_each > 0 and len(numbers := self._subjects.get(subject, {})) > self.max_each:
            self.remove(next(iter(numbers)))

    def shrink(self) -> None:
        """Remove the oldest beyond the limits of size and number."""
        while (0 < self.max_messages < len(self)) or (0 < self.max_bytes < self.bytes):
            self.remove(self.first)

    def expire(self) -> None:
        """Remove what is too old; readers of the log call this before."""
        now = self._clock_ns()
        if self.max_age_ns > 0:
            while self._messages and self._messages[self.first].at_ns + self.max_age_ns <= now:
                self.remove(self.first)
        while self._ends and self._ends[0][0] <= now:
            self.remove(heapq.heappop(self._ends)[1])

    def remove(self, sequence: int) -> bool:
        """Remove a message; False: there is none."""
        message = self._messages.pop(sequence, None)
        if message is None:
            return False
        numbers = self._subjects[message.subject]
        del numbers[sequence]
        if not numbers:
            del self._subjects[message.subject]
        self.bytes -= message.size
        self._removed(message)
        return True

    def get(self, sequence: int) -> Stored | None:
        """Return the message of a sequence."""
        return self._messages.get(sequence)

    def newest(self, pattern: str) -> Stored | None:
        """Return the newest message of the subjects that a pattern matches."""
        numbers = (next(reversed(numbers)) for _, numbers in self._matching(pattern))
        return self._messages.get(max(numbers, default=0))

    def newest_of_each(self, wanted: Filter) -> list[int]:
        """Return the sequences of the newest message of each subject, in order."""
        return sorted(next(reversed(numbers)) for subject, numbers in self._subjects.items() if wanted(subject))

    def next(self, wanted: Filter, sequence: int) -> Stored | None:
        """Return the first message from a sequence on whose subject is wanted."""
        for number in range(max(sequence, self.first), self.last + 1):
            message = self._messages.get(number)
            if message is not None and wanted(message.subject):
                return message
        return None

    def count(self, wanted: Filter, sequence: int) -> int:
        """Return how many messages from a sequence on are wanted."""
        start = max(sequence, self.first)
        if self.last - start < len(self):
            candidates = (self._messages.get(number) for number in range(start, self.last + 1))
            return sum(message is not None and wanted(message.subject) for message in candidates)
        return sum(message.sequence >= start and wanted(message.subject) for message in self._messages.values())

    def purge(self, pattern: str, *, below: int, keep: int) -> int:
        """Remove messages of matching subjects and return how many.

        Args:
            pattern: Subjects; `>` for all.
            below: Only sequences under this one; 0: all.
            keep: Leave so many of the newest.
        """
        numbers = sorted(number for _, each in self._matching(pattern) for number in each)
        gone = [number for number in numbers[: max(0, len(numbers) - keep)] if not below or number < below]
        for number in gone:
            self.remove(number)
        return len(gone)

    def _matching(self, pattern: str) -> Iterator[tuple[str, dict[int, None]]]:
        if pattern in self._subjects:
            yield pattern, self._subjects[pattern]
        elif "*" in pattern or ">" in pattern:
            yield from ((name, each) for name, each in self._subjects.items() if subjects.matches(pattern, name))
