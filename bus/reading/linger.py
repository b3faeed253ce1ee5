"""How long to collect messages before they are folded: the busier the process, the longer.

A fold takes the same milliseconds for one message as for a hundred, and each atomic batch costs the server a folder.
So every process collects for an imperceptible time. A process that folds for half of the time or more collects longer:
the time it saves then reduces the total delay. What counts is how long folds run or wait for their turn: where other
processes take the CPU, the limit is near although this one uses little of it.
"""

import time
from collections.abc import Callable
from itertools import pairwise

_LOOK_SECONDS = 0.5
_PATIENCE, _PATIENT_SECONDS = 10, 2.0  # a patient task collects so many times as long as others, but no longer
_EAGER_PATIENT_SECONDS = 0.2
# Shares of time in which there is a fold, and the seconds to wait; interpolated linearly.
_STEPS = ((0.0, 0.05), (0.2, 0.1), (0.4, 0.15), (0.6, 0.4), (0.8, 0.6))


class Linger:
    """The collection time for all tasks of a process."""

    def __init__(
        self, spent: Callable[[], float], clock: Callable[[], float] = time.monotonic, *, eager: bool = False
    ) -> None:
        """Start as idle.

        Args:
            spent: Returns the seconds in which there was a fold.
            clock: Returns seconds.
            eager: Collect no longer than a task wants at least, as what comes next waits for it, and a patient task
                for a moment, as the end waits for it.
        """
        self._spent, self._clock, self._eager = spent, clock, eager
        self._looked, self._before = clock(), spent()
        self._share = 0.0

    def seconds(self, least: float, *, patient: bool = False) -> float:
        """Return how long to collect now, in seconds; at least `least`, and longer if nothing waits for it."""
        now = self._clock()
        if (passed := now - self._looked) >= _LOOK_SECONDS:
            used = self._spent()
            self._share = 0.5 * self._share + 0.5 * (used - self._before) / passed
            self._looked, self._before = now, used
        if self._eager and not patient:
            return least
        linger = max(least, _at(self._share))
        most = _EAGER_PATIENT_SECONDS if self._eager else _PATIENT_SECONDS
        return min(_PATIENCE * linger, most) if patient else linger


def _at(share: float) -> float:
    for (low, short), (high, long) in pairwise(_STEPS):
        if share < high:
            return short + (long - short) * max(share - low, 0.0) / (high - low)
    return _STEPS[-1][1]
