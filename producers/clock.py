"""The grid of sampling times, and the clocks under it.

A tick is numbered from boot: tick t of a node that takes `samples` a second belongs to second `t // samples`, the
`seq` of its block, and is row `t % samples` of it. The grid is on CLOCK_BOOTTIME, which cannot be set and which
continues while the machine is suspended: a restarted agent computes the same grid, and a step of the wall clock
moves no sample. All times are integer nanoseconds, so the grid does not drift.
"""

import time
from functools import partial
from typing import Protocol

SECOND = 1_000_000_000


class Clock(Protocol):
    """Source of time, which tests replace; all times are in nanoseconds."""

    def boottime(self) -> int:
        """Return the time since boot, including suspension."""

    def monotonic(self) -> int:
        """Return the time that the machine was awake; only differences have a meaning."""

    def realtime(self) -> int:
        """Return the time since the Unix epoch by the wall clock."""

    def sleep(self, seconds: float, /) -> None:
        """Wait at least that long on CLOCK_MONOTONIC."""


class System:
    """The machine's own clocks: CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, called without a wrapper."""

    boottime = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))
    monotonic = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC))
    realtime = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_REALTIME))
    sleep = staticmethod(time.sleep)


def deadline(tick: int, samples: int) -> int:
    """Return the time of a tick, in nanoseconds since boot.

    >>> deadline(57, 10)
    5700000000
    """
    second, index = divmod(tick, samples)
    return second * SECOND + index * SECOND // samples


def latest(now: int, samples: int) -> int:
    """Return the newest tick whose time has come.

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
    """Return the number of missed ticks from `due` on: a tick is missed once the time of the next one has come."""
    return max(0, latest(now, samples) - due)


def boottime_of(wall: int, clock: Clock, *, earliest: int) -> int:
    """Convert a wall-clock time of another program to time since boot; all in nanoseconds.

    The wall clock may have been set since, so the result is limited to the interval from `earliest` to now.

    Args:
        wall: Time since the Unix epoch.
        clock: Clocks.
        earliest: Time since boot at which the program was asked.
    """
    now = clock.boottime()
    return min(max(wall - clock.realtime() + now, earliest), now)


def wall_us(second: int, boottime: int, realtime: int) -> int:
    """Return the wall clock's time at a whole second since boot, in microseconds.

    Args:
        second: Seconds since boot.
        boottime: A time in nanoseconds since boot.
        realtime: The same time in nanoseconds since the Unix epoch.
    """
    return (realtime - boottime + second * SECOND) // 1000
