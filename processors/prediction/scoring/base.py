"""What scales are added to: the bases of a row's peak, and the scale of each.

| base | is | scale | knows |
|---|---|---|---|
| mean | faded mean m | s | usage without a clock |
| clock | greater of m + s and the highest usage at the same hours of earlier days | s | what rises every day |
| high | highest usage, which fades to the mean | the same, and a little | margins that grow with usage |
| past | faded mean of the peaks of earlier horizons | their deviation | how rows differ in their tails |

A base is one entry of `NAMES`, with its line in `read`. How much it counts is not decided here but by the pinball loss
of its peaks on each row (`expert`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import conformal, past_peak, same_clock

Array = NDArray[np.float64]
Times = NDArray[np.int64]

NAMES = ("mean", "clock", "high", "past")
COUNT = len(NAMES)
MEAN, CLOCK, HIGH, PAST = range(COUNT)

_LEAST = 0.005  # share of the limit that is added to the highest usage as its scale


class State(NamedTuple):
    """What is known of each row beside mean and scale.

    Attributes:
        clock: Highest usage at the hours of the day.
        past: Peaks of earlier horizons.
        high: (rows, resources) highest usage, faded to the mean; NaN: none was seen.
    """

    clock: same_clock.State
    past: past_peak.State
    high: Array


def init(rows: int, resources: int) -> State:
    """Return the state of rows never seen."""
    return State(same_clock.init(rows, resources), past_peak.init(rows, resources), np.full((rows, resources), np.nan))


def update(
    state: State,
    usage: Array,
    before_us: Times,
    followed: conformal.State,
    turn: conformal.Turn,
    params: conformal.Params,
) -> State:
    """Take in one sample of each row.

    Args:
        state: What the last call returned, or `init`.
        usage: (rows, resources) shares of the limit; NaN: missing.
        before_us: (rows,) time of the row's sample before; 0: there was none.
        followed: Mean and scale with this sample.
        turn: What it has ended.
        params: How far predictions look.
    """
    horizon, at_us = params.horizon_seconds, followed.at_us
    seen = at_us > before_us
    elapsed = np.where(seen & (before_us > 0), at_us - before_us, 0) / 1e6
    clock = same_clock.update(state.clock, usage, before_us, at_us, horizon_seconds=horizon)
    past = past_peak.update(state.past, turn.waiting, turn.done, elapsed, horizon_seconds=horizon)
    kept = np.exp2(-elapsed / params.half_life_seconds)[:, None]
    faded = np.fmax(usage, followed.mean + (state.high - followed.mean) * kept)
    return State(clock, past, np.where(seen[:, None] & ~np.isnan(usage), faded, state.high))


def read(followed: conformal.State, state: State, *, params: conformal.Params) -> tuple[Array, Array]:
    """Return the bases and their scales, each (rows, bases, resources), shares of the limit; NaN: not known."""
    scale = conformal.scale(followed, params=params)
    mean = np.where(followed.weight > 0, followed.mean, np.nan)
    clock = np.where(np.isnan(mean), np.nan, np.fmax(mean + scale, state.clock.ahead))
    bases = np.stack([mean, clock, state.high, past_peak.base(state.past)], axis=1)
    return bases, np.stack([scale, scale, state.high + _LEAST, past_peak.scale(state.past)], axis=1)
