"""Which time of a node counts: its wall clock while it runs evenly, else the boot clock beside it.

A block has its time twice: `at_us` by the wall clock, which an operator may set, and `seq` in seconds of
CLOCK_BOOTTIME, which cannot be set. Their difference is constant but for what NTP slews, smears and steps, all of it
far below a second.
Where it moves by more than two, the wall clock has jumped, and the boot clock carries the time on. If the new
difference then holds for a minute of blocks, the clock was set on purpose and counts again. A clock that was wrong
from the start does not show in its own blocks, but beside other nodes': it stays the same distance from the partition's
event second, while a node that sends its backlog comes closer with each block.
"""

from typing import NamedTuple

from schemas.messages.telemetry import MAXIMUM_US

_SECOND_US = 1_000_000
_LATEST_US = 2**53 - 1 - MAXIMUM_US

TOLERANCE_US = 2 * _SECOND_US
_STILL_US = 1000  # less than that is not worth a change of state
FAR_US = 60 * _SECOND_US
HELD = 60
STEADY = 60


class Clock(NamedTuple):
    """One node's clock.

    Attributes:
        offset_us: Wall clock minus boot clock, as it counts.
        reported_us: The same, as the node has reported since its clock jumped; only while `held` is not 0.
        held: Blocks in a row that have reported it.
        apart_us: Corrected time minus the partition's event second; only while `steady` is not 0.
        steady: Blocks in a row that were so far away.
        jumps: Times that the clock has jumped.
    """

    offset_us: int
    reported_us: int = 0
    held: int = 0
    apart_us: int = 0
    steady: int = 0
    jumps: int = 0


def update(clock: Clock | None, seq: int, at_us: int, second: int) -> Clock:
    """Fold one block of the boot that `clock` is of.

    Args:
        clock: None for the first block of a boot.
        seq: The block's second of CLOCK_BOOTTIME.
        at_us: The block's time by the wall clock.
        second: The partition's event second; 0 if there is none yet.
    """
    offset = at_us - seq * _SECOND_US
    if clock is None:
        after = Clock(offset)
    elif abs(offset - clock.offset_us) > TOLERANCE_US:
        after = _jumped(clock, offset)
    elif abs(offset - clock.offset_us) <= _STILL_US and not clock.held:
        after = clock
    else:
        # A clock that is slewed moves without end, a little with each block.
        after = Clock(offset, 0, 0, clock.apart_us, clock.steady, clock.jumps)
    if not second:
        return after
    apart = (at_of(after, seq, at_us) if after.held else at_us) - second * _SECOND_US
    if abs(apart) <= FAR_US:
        return after._replace(apart_us=0, steady=0) if after.steady else after
    if after.steady and abs(apart - after.apart_us) <= TOLERANCE_US:
        return after._replace(steady=min(after.steady + 1, STEADY))
    return after._replace(apart_us=apart, steady=1)


def is_still(clock: Clock, seq: int, at_us: int, second: int) -> bool:
    """Tell whether `update` with these would change nothing, and the block's time is right; False: it may be so.

    >>> is_still(Clock(offset_us=500_000_000), 7, 507_000_250, 507), is_still(Clock(offset_us=0), 7, 9_000_000, 9)
    (True, False)
    """
    if not second or clock.held or clock.steady or abs(at_us - second * _SECOND_US) > FAR_US:
        return False
    return abs(at_us - seq * _SECOND_US - clock.offset_us) <= _STILL_US


def _jumped(clock: Clock, offset: int) -> Clock:
    if clock.held and abs(offset - clock.reported_us) <= TOLERANCE_US:
        if clock.held + 1 >= HELD:
            return Clock(offset, jumps=clock.jumps)
        return clock._replace(reported_us=offset, held=clock.held + 1)
    return clock._replace(reported_us=offset, held=1, jumps=clock.jumps + 1)


def at_of(clock: Clock, seq: int, at_us: int) -> int:
    """Return the corrected time of something that a node reports in a second of its boot.

    >>> at_of(Clock(offset_us=500_000_000), 7, 507_250_000), at_of(Clock(offset_us=500_000_000), 7, 3)
    (507250000, 507000000)
    """
    carried = clock.offset_us + seq * _SECOND_US
    return at_us if abs(at_us - carried) <= TOLERANCE_US else min(max(carried, 0), _LATEST_US)


def apart(clock: Clock, seq: int, at_us: int) -> bool:
    """Return whether a block's wall clock is not this one, neither as it counts nor as it is reported."""
    offset = at_us - seq * _SECOND_US
    if abs(offset - clock.offset_us) <= TOLERANCE_US:
        return False
    return not clock.held or abs(offset - clock.reported_us) > TOLERANCE_US


def carried(clock: Clock, seq: int) -> int:
    """Return the wall clock's time in a second of the boot, if it has run evenly since the newest block."""
    return min(max((clock.reported_us if clock.held else clock.offset_us) + seq * _SECOND_US, 0), _LATEST_US)


def error_us(clock: Clock) -> int | None:
    """Return how far the wall clock is off: from the time carried on or the partition's; None: it counts as right."""
    if clock.held:
        return clock.reported_us - clock.offset_us
    return clock.apart_us if clock.steady >= STEADY else None
