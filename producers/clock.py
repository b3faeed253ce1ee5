"""The grid of moments at which samples are taken, and the clocks that it is laid on.

A tick is numbered from boot: tick t of a node that takes `samples` a second belongs to second `t // samples`, the
`seq` of its block, and is row `t % samples` of it. The grid lies on CLOCK_BOOTTIME, which nobody sets and which
goes on while the machine is suspended: a restarted agent finds the same grid, and a wall clock that is stepped
moves no sample. All is in whole nanoseconds, so that nothing drifts.
"""

import time
from functools import partial
from typing import Protocol

SECOND = 1_000_000_000


class Clock(Protocol):
    """Time, so that tests can make their own; each moment is in nanoseconds."""

    def boottime(self) -> int:
        """Return the time since boot, suspension included."""

    def monotonic(self) -> int:
        """Return the time that the machine was awake; only differences mean anything."""

    def realtime(self) -> int:
        """Return the time since the Unix epoch, as the wall clock has it."""

    def sleep(self, seconds: float, /) -> None:
        """Wait, never less than that long on CLOCK_MONOTONIC."""


class System:
    """The machine's own clocks: CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME; asked without a layer between."""

    boottime = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))
    monotonic = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC))
    realtime = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_REALTIME))
    sleep = staticmethod(time.sleep)


def deadline(tick: int, samples: int) -> int:
    """Return the moment of a tick, in nanoseconds since boot.

    >>> deadline(57, 10)
    5700000000
    """
    second, index = divmod(tick, samples)
    return second * SECOND + index * SECOND // samples


def latest(now: int, samples: int) -> int:
    """Return the newest tick whose moment has come.

    With r nanoseconds into the second, that is the largest i with floor(i SECOND / samples) <= r, which for whole
    numbers is i < (r + 1) samples / SECOND.

    >>> latest(5_700_000_000, 10), latest(5_699_999_999, 10)
    (57, 56)
    """
    second, rest = divmod(now, SECOND)
    return second * samples + ((rest + 1) * samples - 1) // SECOND


def lateness(tick: int, now: int, samples: int) -> float:
    """Return by how many seconds `now` is later than the tick; negative before it."""
    return (now - deadline(tick, samples)) / SECOND


def missed(due: int, now: int, samples: int) -> int:
    """Return how many ticks, from the one that is due on, were slept through: all whose next one has come, too."""
    return max(0, latest(now, samples) - due)


def boottime_of(wall: int, clock: Clock, *, earliest: int) -> int:
    """Return the moment since boot of what another program dates by the wall clock; all in nanoseconds.

    The wall clock may have been set since; what was told cannot have been before it was asked for, nor later than now.

    Args:
        wall: Time since the Unix epoch.
        clock: Clocks.
        earliest: Time since boot when it was asked for.
    """
    now = clock.boottime()
    return min(max(wall - clock.realtime() + now, earliest), now)


def wall_us(second: int, boottime: int, realtime: int) -> int:
    """Return the wall clock's time at a whole second since boot, in microseconds.

    Args:
        second: Seconds since boot.
        boottime: A moment in nanoseconds since boot.
        realtime: The same moment in nanoseconds since the Unix epoch.
    """
    return (realtime - boottime + second * SECOND) // 1000
