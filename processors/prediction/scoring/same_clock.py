"""The highest usage at the same hours of earlier days.

What rises every day at nine is high at nine tomorrow, however calm the last hours were. Per row and hour of the day the
highest usage is kept, in generations of three days, so that the last six to nine days count.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]

_HOURS, _GENERATIONS = 24, 3
_HOUR_US = 3600 * 10**6
_GENERATION_US = 3 * _HOURS * _HOUR_US


class State(NamedTuple):
    """What was seen of each row.

    Attributes:
        highest: (rows, resources, generations, hours) highest usage, share of the limit; NaN: none was seen.
        ahead: (rows, resources) the highest of the hours within the horizon of the newest sample; NaN: none was seen.
    """

    highest: NDArray[np.float32]
    ahead: Array


def init(rows: int, resources: int) -> State:
    """Return the state of rows never seen."""
    highest = np.full((rows, resources, _GENERATIONS, _HOURS), np.nan, dtype=np.float32)
    return State(highest, np.full((rows, resources), np.nan))


def update(state: State, usage: Array, before_us: Times, at_us: Times, *, horizon_seconds: float) -> State:
    """Take in one sample of each row.

    Args:
        state: What the last call returned, or `init`.
        usage: (rows, resources) shares of the limit; NaN: missing.
        before_us: (rows,) time of the row's sample before; 0: there was none.
        at_us: (rows,) time of the sample; a row whose time does not move forward is left as it is.
        horizon_seconds: How far to look ahead.
    """
    seen = at_us > before_us
    highest, (row_ended, generation) = state.highest.copy(), np.nonzero(_ended(before_us, at_us))
    highest[row_ended, :, generation] = np.nan
    row = np.arange(len(usage))
    hour = at_us // _HOUR_US % _HOURS
    cell = (row, slice(None), at_us // _GENERATION_US % _GENERATIONS, hour)
    highest[cell] = np.where(seen[:, None], np.fmax(highest[cell], usage), highest[cell])
    hours = min(-(-int(horizon_seconds) // 3600) + 1, _HOURS)
    within = (hour[:, None] + np.arange(hours)) % _HOURS
    ahead = np.fmax.reduce(highest[row[:, None], :, :, within], axis=(1, 3))
    return State(highest, np.where(seen[:, None], ahead, state.ahead))


def _ended(before_us: Times, at_us: Times) -> Mask:
    """Return (rows, generations) True where a generation has ended that its successor takes the room of."""
    before, now = before_us // _GENERATION_US, at_us // _GENERATION_US
    # After a clock that was set back nothing is known of the sample before, and what was seen stays.
    begun = np.where(before_us > 0, np.clip(now - before, 0, _GENERATIONS), 0)
    ended: Mask = (now[:, None] - np.arange(_GENERATIONS)) % _GENERATIONS < begun[:, None]
    return ended
