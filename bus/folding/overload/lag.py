"""How far a task is behind the newest message of its stream, by the server's own times and not by the clock here."""

from collections import deque
from collections.abc import Sequence

from bus.reading.progress import Received

_SPAN_US = 5_000_000  # of the stream over which messages are counted; they are stored in bursts


class Lag:
    """What a task has read lately, so that it can tell how long what waits took to come."""

    def __init__(self) -> None:
        """Start without having read anything."""
        self._read: deque[tuple[int, int]] = deque()  # when the server stored a message, and how many came up to it
        self._count = 0

    def take(self, messages: Sequence[Received]) -> None:
        """Take in messages that were read, in stream order and without a gap since the last ones."""
        if not messages:
            return
        if not self._read:
            self._read.append((messages[0].stored_us, self._count))
        self._count += len(messages)
        self._read.append((messages[-1].stored_us, self._count))
        while len(self._read) > 2 and self._read[1][0] < messages[-1].stored_us - _SPAN_US:
            self._read.popleft()

    def skip(self) -> None:
        """Take in that what is read next does not follow what was read before."""
        self._read.clear()

    def seconds(self, messages: Sequence[Received], pending: int) -> float:
        """Return how far the first of messages that were taken in last is behind.

        Those that are still to come are taken to be as close together as what was read lately.

        Args:
            messages: At least one.
            pending: How many messages wait behind the last one; -1: it is not known.
        """
        (begin_us, before), (end_us, count) = self._read[0], self._read[-1]
        pace_us = max(0, end_us - begin_us) / max(1, count - before)
        return (max(0, messages[-1].stored_us - messages[0].stored_us) + max(0, pending) * pace_us) / 1e6
