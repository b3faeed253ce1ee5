"""How long to collect messages before they are folded: the busier the process, the longer.

A fold costs the same millisecond for one message as for a hundred. A process that has little to do folds at once; one
that is busy waits, up to a limit that nobody notices, so that a fold has more to do and the process less.
"""

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.5
_IDLE, _BUSY = 0.1, 0.4  # shares of a core
_LONGEST_SECONDS = 0.05


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
        busy = min(max((self._share - _IDLE) / (_BUSY - _IDLE), 0.0), 1.0)
        return max(least, busy * _LONGEST_SECONDS)
