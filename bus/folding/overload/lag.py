"""How far a task is behind the newest message of its stream.

Once a task has read all there is, the difference between the clock here and the server's is clear, and from then on a
message's time says how far it is behind. Before that, as after an outage, the server's own times tell how long what
waits took to come. That alone misleads when the load changes: what waits came faster than what was read.

A server's clock that is set back or slowed down makes messages look old, as a delay does. So the difference grows by as
much as the times of messages go back, and, after some seconds in which nothing ever waited at the server, to the least
that it was in them. A single reading is not enough: nothing waits there behind what came during a fold, which is old.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from bus.reading.progress import Received

_SPAN_US = 5_000_000  # of the stream over which messages are counted; they are stored in bursts
_STEP_US = 60_000_000  # a gap between two messages from which on the server's clock may have been set
_DRIFT = 0.001  # more than clocks differ in pace
_SURE_SECONDS = 3.0  # in which nothing waits; less than a delay has to last before anything is left out


class Lag:
    """What a task has read lately, so that it can tell how long what waits took to come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without having read anything; `clock` returns seconds."""
        self._clock, self._looked = clock, clock()
        self._apart_us = float("nan")  # the clock here less the server's
        self._drained: list[tuple[float, float]] = []  # when all was read that there was, and that difference then
        self._read: deque[tuple[int, int]] = deque()  # when the server stored a message, and how many came up to it
        self._count = 0

    def take(self, messages: Sequence[Received]) -> None:
        """Take in messages that were read, in stream order and without a gap since the last ones."""
        if not messages:
            return
        if not self._read:
            self._read.append((messages[0].stored_us, self._count))
        if not 0 <= (passed_us := messages[-1].stored_us - self._read[-1][0]) <= _STEP_US:
            self._apart_us = self._apart_us - passed_us if passed_us < 0 else float("nan")
            self._drained.clear()
        self._count += len(messages)
        self._read.append((messages[-1].stored_us, self._count))
        while len(self._read) > 2 and self._read[1][0] < messages[-1].stored_us - _SPAN_US:
            self._read.popleft()

    def skip(self) -> None:
        """Take in that what is read next does not follow what was read before."""
        self._read.clear()

    def seconds(self, messages: Sequence[Received], pending: int) -> float:
        """Return how far the first of messages that were taken in last is behind.

        Args:
            messages: At least one.
            pending: How many messages wait behind the last one; -1: it is not known.
        """
        self._compare(messages[-1].stored_us, pending)
        if not math.isnan(self._apart_us):
            return max(0.0, self._looked * 1e6 - self._apart_us - messages[0].stored_us) / 1e6
        (begin_us, before), (end_us, count) = self._read[0], self._read[-1]
        pace_us = max(0, end_us - begin_us) / max(1, count - before)
        return (max(0, messages[-1].stored_us - messages[0].stored_us) + max(0, pending) * pace_us) / 1e6

    def _compare(self, stored_us: int, pending: int) -> None:
        """Compare the clocks by a message that was read now; nothing comes before the server has stored it."""
        before, self._looked = self._looked, self._clock()
        apart_us = self._looked * 1e6 - stored_us
        if pending:
            self._drained.clear()
        else:
            self._drained.append((self._looked, apart_us))
        if not pending and math.isnan(self._apart_us):
            self._apart_us = apart_us
        elif self._drained and self._looked - self._drained[0][0] >= _SURE_SECONDS:
            self._apart_us = min(apart for _, apart in self._drained)
            del self._drained[:-1]
        else:
            self._apart_us = min(self._apart_us + _DRIFT * 1e6 * (self._looked - before), apart_us)
