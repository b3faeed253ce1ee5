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

from processors.prediction.scoring import pending

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]

_DAY_US = 86_400 * 10**6
_LOWEST, _WIDTH, _BINS = -5.0, 0.1, 500
_POOLED, _MOST_POOLED = 20.0, 200.0
_TAIL = 0.01
_FIRST_SECONDS = 1.0


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
    gap_seconds: float = 900.0


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


class Table(NamedTuple):
    """What all rows together taught: `counts` (times of day, resources, bins) of z; equal parts of a UTC day."""

    counts: Array


class Spread(NamedTuple):
    """What the peak of a row is made of, shares of the limit; any shape.

    Attributes:
        mean: Faded mean; NaN: nothing is known.
        scale: Scale s, above 0.
        multiple: z(p) at the row's time of day; NaN: nothing was learned.
    """

    mean: Array
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


def empty(resources: int, *, times: int = 24) -> Table:
    """Return the table before anything was learned, with a day in `times` parts."""
    return Table(np.zeros((times, resources, _BINS)))


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
    seen = (at_us > state.at_us) & ~np.isnan(usage).all(axis=1)
    elapsed = np.where(seen & (state.at_us > 0), (at_us - state.at_us) / 1e6, 0.0)
    waiting = pending.observe(state.waiting, usage, seen, elapsed > params.gap_seconds)
    done = pending.due(waiting, at_us, seen, horizon_seconds=params.horizon_seconds)
    table = _learn(state._replace(waiting=waiting), table, done)
    state = _follow(state, usage, seen, elapsed, params)
    waiting, chosen = pending.place(
        pending.release(waiting, done), at_us, seen, interval_seconds=params.interval_seconds
    )
    here = chosen[:, None, :]
    mean = np.where(np.isnan(usage), np.nan, state.mean)
    state = state._replace(
        at_us=np.where(seen, at_us, state.at_us),
        waiting=waiting,
        means=np.where(here, mean[..., None], state.means),
        scales=np.where(here, scale(state, params=params)[..., None], state.scales),
    )
    return state, table


def close(state: State, table: Table) -> tuple[State, Table]:
    """Learn from all that waits, as if every horizon ended now: at the end of a recording."""
    done = state.waiting.born_us > 0
    return state._replace(waiting=pending.release(state.waiting, done)), _learn(state, table, done)


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
    return Spread(mean, scale(state, params=params), multiple[time_of_day(state.at_us, len(multiple))])


def upper(spread: Spread) -> Array:
    """Return the peak, share of the limit 0..1; the whole limit where nothing is known or was learned."""
    peak = spread.mean + spread.scale * spread.multiple
    return np.where(np.isnan(peak), 1.0, np.clip(peak, 0.0, 1.0))


def quantile(table: Table, probability: float) -> Array:
    """Return z(p) (times of day, resources), the multiple of the scale that a share p of predictions rose above.

    A time of day with little evidence borrows from the others: as much as 20 predictions weigh, and as many more as it
    takes to see the probability twice, at most 200. Below one in a hundred too few were seen to count: there the tail
    is taken as exponential, with the mean excess that was seen.

    Args:
        table: What was learned.
        probability: Wanted share of violations, above 0 and below 1.

    Returns:
        NaN where nothing was learned of the resource.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must be above 0 and below 1, not {probability}")
    above = _above(table, _pooled(probability))
    wanted = max(probability, _TAIL)
    last = np.count_nonzero(above >= wanted, axis=2, keepdims=True) - 1
    high, low = (np.take_along_axis(above, np.clip(last + more, 0, _BINS), axis=2)[..., 0] for more in (0, 1))
    part = np.divide(high - wanted, high - low, out=np.zeros_like(high), where=high > low)
    multiple: Array = _LOWEST + _WIDTH * (np.maximum(last[..., 0], 0) + part)
    if probability < _TAIL:
        beyond = np.where(np.arange(_BINS + 1) > last, above, 0.0)
        area = _WIDTH * (beyond.sum(axis=2) - low / 2 + (1 - part) * (wanted + low) / 2)
        multiple = multiple + np.log(_TAIL / probability) * area / _TAIL
    return np.where(np.isnan(above[..., 0]), np.nan, multiple)


def stated(table: Table, probability: float) -> Array:
    """Return the probability of a violation (times of day, resources) that can be vouched for.

    That of n predictions none rose above a peak shows no less than 1 in n + 1; 1 where nothing was learned.
    """
    own = table.counts.sum(axis=2)
    least: Array = 1.0 / (own + np.minimum(own.sum(axis=0) - own, _pooled(probability)) + 1.0)
    return np.where(least < probability, probability, least)


def fade(table: Table, factor: float) -> Table:
    """Return the table with all that was learned weighing less, 0..1."""
    return Table(table.counts * factor)


def lengthen(table: Table, before_seconds: float, now_seconds: float) -> Table:
    """Return what a table that was learned at one horizon says of a longer one.

    Usage within the longer horizon is at most the highest of the q shorter ones in it, so P(z' > x) <= q P(z > x)
    (Boole's inequality): of the mean counts of the parts of the day that it touches, the highest 1 / q remain. That
    holds as far as mean and scale stay those when the prediction was made. A shorter horizon is not above the longer
    one, so the table stays.
    """
    if now_seconds <= before_seconds:
        return table
    times = len(table.counts)
    touched = min(int(now_seconds * 1e6 * times // _DAY_US) + 1, times)
    pooled = np.mean([np.roll(table.counts, -part, axis=0) for part in range(touched)], axis=0)
    kept = pooled.sum(axis=2, keepdims=True) * before_seconds / now_seconds
    above = np.minimum(np.cumsum(pooled[..., ::-1], axis=2)[..., ::-1], kept)
    return Table(above - np.concatenate((above[..., 1:], np.zeros_like(kept)), axis=2))


def time_of_day(at_us: Times, times: int) -> NDArray[np.intp]:
    """Return which of the equal parts of a UTC day a time is in."""
    return np.asarray(at_us % _DAY_US * times // _DAY_US, dtype=np.intp)


def _pooled(probability: float) -> float:
    """Return how many predictions of all day a time of day borrows at most."""
    return min(max(_POOLED, 2.0 / probability), _MOST_POOLED)


def _above(table: Table, pooled: float) -> Array:
    """Return the share (times of day, resources, bins + 1) of z at or above each bin's lower edge."""
    all_day = table.counts.sum(axis=0)
    evidence = all_day.sum(axis=1, keepdims=True)
    shape = np.divide(all_day, evidence, out=np.full_like(all_day, np.nan), where=evidence > 0)
    counts = table.counts + np.minimum(evidence, pooled) * shape
    above = np.zeros((*counts.shape[:2], _BINS + 1))
    above[..., :-1] = np.cumsum(counts[..., ::-1], axis=2)[..., ::-1]
    share: Array = above / above[..., :1]
    return share


def _learn(state: State, table: Table, done: Mask) -> Table:
    residual = (state.waiting.highest - state.means) / state.scales
    row, column, slot = np.nonzero(done[:, None, :] & ~np.isnan(residual))
    if not row.size:
        return table
    times = time_of_day(state.waiting.born_us[row, slot], len(table.counts))
    bin_number = np.clip((residual[row, column, slot] - _LOWEST) / _WIDTH, 0, _BINS - 1).astype(np.intp)
    flat = np.ravel_multi_index((times, column, bin_number), table.counts.shape)
    more = np.bincount(flat, minlength=table.counts.size).reshape(table.counts.shape)
    return Table(table.counts + more)


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
