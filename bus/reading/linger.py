"""How long to collect messages before they are folded: the busier the process, the longer.

A fold costs the same millisecond for one message as for a hundred, and its atomic batch a folder of the server's. A
process that has little to do folds at once; one that is busy waits, up to a limit that nobody notices, so that a fold
has more to do and the process less. One that can hardly keep up waits longer: what it saves comes sooner in the end.
"""

import time
from collections.abc import Callable
from itertools import pairwise

_LOOK_SECONDS = 0.5
# Shares of a core, and the seconds to wait; a straight line from each to the next.
_STEPS = ((0.1, 0.0), (0.4, 0.05), (0.65, 0.05), (0.85, 0.25))


class Linger:
    """The time to wait, for everything that a process folds."""

    def __init__(
        self, spent: Callable[[], float] = time.process_time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start as idle; `spent` returns CPU seconds of this process, `clock` seconds."""
        self._spent, self._clock = spent, clock
        self._looked, self._before = clock(), spent()
        self._share = 0.0

    def seconds(self, least: float) -> float:
        """Return how long to wait now; at least so long."""
        now = self._clock()
        if (passed := now - self._looked) >= _LOOK_SECONDS:
            used = self._spent()
            self._share = 0.5 * self._share + 0.5 * (used - self._before) / passed
            self._looked, self._before = now, used
        return max(least, _at(self._share))


def _at(share: float) -> float:
    for (low, short), (high, long) in pairwise(_STEPS):
        if share < high:
            return short + (long - short) * max(share - low, 0.0) / (high - low)
    return _STEPS[-1][1]
