"""A predicted peak that states how often usage rises above it, and learns whether that was true.

Usage is a share of the limit. Per row a faded mean m and variance v are kept; the scale is

    s = sqrt((w v + w0 d^2) / (w + w0))        w: seconds of evidence, faded; d, w0: deviation assumed, and its weight

When a prediction's horizon has passed, z = (highest usage since - m) / s is how many scales above the mean usage
went. The z of all rows together make one histogram per time of day: what an hour of the morning still has before it
is not what an hour of the evening has. The peak is m + s z(p), with z(p) the value that a share p of the predictions
made at that time of day rose above. It is split conformal prediction (Vovk et al., 2005) of a normalised residual,
within classes of the time of day. So p is not a setting of a model but a frequency that was seen. Since rows are
pooled, a new row profits from its first sample on; since it is a share, rows of any size may be pooled.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import pending, residuals
from processors.prediction.scoring.residuals import Table

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]

_FIRST_SECONDS = 1.0
GAP_SECONDS = 900.0


@dataclass(frozen=True)
class Params:
    """How it learns.

    Attributes:
        half_life_seconds: Age at which a sample counts half in mean and variance. Shorter follows noise, longer misses
            what of the day's turn is within the horizon.
        prior_seconds: Weight of the assumed deviation, in seconds of evidence.
        deviation: Standard deviation that is assumed of a new row, share of the limit.
        horizon_seconds: How far a prediction looks.
        interval_seconds: Time between two predictions of a row that are learned from.
        gap_seconds: A longer time without a sample drops what waits; it also bounds the weight of one sample.
    """

    half_life_seconds: float = 3 * 3600.0
    prior_seconds: float = 6 * 3600.0
    deviation: float = 0.02
    horizon_seconds: float = 24 * 3600.0
    interval_seconds: float = 3600.0
    gap_seconds: float = GAP_SECONDS


class State(NamedTuple):
    """What is known of each row.

    Attributes:
        weight: (rows, resources) seconds of evidence, faded.
        mean: (rows, resources) faded mean, share of the limit.
        variance: (rows, resources) faded variance about it.
        at_us: (rows,) time of the newest sample; 0: there was none.
        waiting: Predictions whose horizon has not passed.
        means: (rows, resources, slots) mean when they were made; NaN: not known.
        scales: (rows, resources, slots) scale when they were made.
    """

    weight: Array
    mean: Array
    variance: Array
    at_us: Times
    waiting: pending.State
    means: Array
    scales: Array


class Turn(NamedTuple):
    """What one sample of each row has ended and begun.

    Attributes:
        waiting: Predictions that waited when the sample came, and the highest usage since, this sample's among it.
        means: (rows, resources, slots) their means.
        scales: (rows, resources, slots) their scales.
        done: (rows, slots) True: the horizon has passed.
        chosen: (rows, slots) True: the slot is now that of a new prediction.
    """

    waiting: pending.State
    means: Array
    scales: Array
    done: Mask
    chosen: Mask


class Spread(NamedTuple):
    """What the peak of a row is made of, shares of the limit; any shape.

    Attributes:
        base: What the scales are added to, the faded mean or above it; NaN: nothing is known.
        scale: Scale s, above 0.
        multiple: z(p) at the row's time of day; NaN: nothing was learned.
    """

    base: Array
    scale: Array
    multiple: Array


def init(rows: int, resources: int, *, slots: int) -> State:
    """Return the state of rows never seen; slots times interval should reach the horizon."""
    wide = (rows, resources)
    return State(
        weight=np.zeros(wide),
        mean=np.zeros(wide),
        variance=np.zeros(wide),
        at_us=np.zeros(rows, dtype=np.int64),
        waiting=pending.init(rows, resources, slots),
        means=np.full((*wide, slots), np.nan),
        scales=np.full((*wide, slots), np.nan),
    )


def update(state: State, table: Table, usage: Array, at_us: Times, *, params: Params) -> tuple[State, Table]:
    """Take in one sample of each row, and learn from the predictions whose horizon it ends.

    Counts are whole numbers, so the table is the same however rows are batched.

    Args:
        state: What the last call returned, or `init`.
        table: What the last call returned, `empty`, or one that was learned elsewhere.
        usage: (rows, resources) shares of the limit; NaN: missing, or without a limit.
        at_us: (rows,) time of the sample; a row whose time does not move forward is left as it is.
        params: How it learns.
    """
    state, turn = advance(state, usage, at_us, params=params)
    return state, learn(table, turn, turn.means, turn.scales)


def advance(state: State, usage: Array, at_us: Times, *, params: Params) -> tuple[State, Turn]:
    """Take in one sample of each row; returns what is to be learned of it, too. Arguments are those of `update`."""
    seen = (at_us > state.at_us) & ~np.isnan(usage).all(axis=1)
    elapsed = np.where(seen & (state.at_us > 0), (at_us - state.at_us) / 1e6, 0.0)
    waiting = pending.observe(state.waiting, usage, seen, elapsed > params.gap_seconds)
    done = pending.due(waiting, at_us, seen, horizon_seconds=params.horizon_seconds)
    means, scales = state.means, state.scales
    state = _follow(state, usage, seen, elapsed, params)
    judged = waiting
    waiting, chosen = pending.admit(
        pending.release(waiting, done), at_us, seen, interval_seconds=params.interval_seconds
    )
    turn = Turn(judged, means, scales, done, chosen)
    state = state._replace(at_us=np.where(seen, at_us, state.at_us), waiting=waiting)
    if not chosen.any():
        return state, turn
    here = chosen[:, None, :]
    mean = np.where(np.isnan(usage), np.nan, state.mean)
    return state._replace(
        means=np.where(here, mean[..., None], state.means),
        scales=np.where(here, scale(state, params=params)[..., None], state.scales),
    ), turn


def close(state: State, table: Table) -> tuple[State, Table]:
    """Learn from all that waits, as if every horizon ended now: at the end of a recording."""
    done = state.waiting.born_us > 0
    turn = Turn(state.waiting, state.means, state.scales, done, np.zeros_like(done))
    return state._replace(waiting=pending.release(state.waiting, done)), learn(table, turn, state.means, state.scales)


def learn(table: Table, turn: Turn, bases: NDArray[np.floating], scales: NDArray[np.floating]) -> Table:
    """Learn how many scales above a base usage rose in the predictions whose horizon has ended.

    Args:
        table: What was learned.
        turn: What `advance` returned.
        bases: (rows, resources, slots) of the predictions that wait; NaN: not known.
        scales: (rows, resources, slots) theirs.
    """
    residual = (turn.waiting.highest - bases) / scales
    row, column, slot = np.nonzero(turn.done[:, None, :] & ~np.isnan(residual))
    if not row.size:
        return table
    return residuals.learn(table, residual[row, column, slot], column, turn.waiting.born_us[row, slot])


def scale(state: State, *, params: Params) -> Array:
    """Return the scale s (rows, resources), above 0."""
    seen, assumed = state.weight * state.variance, params.prior_seconds * params.deviation**2
    root: Array = np.sqrt((seen + assumed) / (state.weight + params.prior_seconds))
    return root


def peak(state: State, multiple: Array, *, params: Params) -> Array:
    """Return the predicted peak (rows, resources), share of the limit 0..1; the whole limit where nothing is known.

    Args:
        state: What is known of each row.
        multiple: (times of day, resources) z(p) of `quantile`.
        params: How it learned.
    """
    return upper(spread(state, multiple, params=params))


def spread(state: State, multiple: Array, *, params: Params) -> Spread:
    """Return what the peaks are made of (rows, resources); arguments as of `peak`."""
    mean = np.where(state.weight > 0, state.mean, np.nan)
    return Spread(mean, scale(state, params=params), multiple[residuals.time_of_day(state.at_us, len(multiple))])


def upper(spread: Spread) -> Array:
    """Return the peak, share of the limit 0..1; the whole limit where nothing is known or was learned."""
    peak = spread.base + spread.scale * spread.multiple
    return np.where(np.isnan(peak), 1.0, np.clip(peak, 0.0, 1.0))


def _follow(state: State, usage: Array, seen: Mask, elapsed: Array, params: Params) -> State:
    first = state.weight == 0
    is_known = seen[:, None] & ~np.isnan(usage)
    seconds = np.where(first, _FIRST_SECONDS, np.minimum(elapsed, params.gap_seconds)[:, None])
    faded = state.weight * np.exp2(-elapsed / params.half_life_seconds)[:, None]
    weight = np.where(is_known, faded + seconds, faded)
    share = np.divide(seconds, weight, out=np.zeros_like(weight), where=is_known & (weight > 0))
    step = np.where(is_known, usage - state.mean, 0.0)
    variance = (1.0 - share) * (state.variance + share * step**2)
    return state._replace(weight=weight, mean=state.mean + share * step, variance=variance)
