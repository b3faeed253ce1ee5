"""How usage was spread, recent usage counting more: decayed histograms of many nodes, classes or pods at once.

A sample of weight w at time t adds `w * 2^((t - reference) / half-life)` to its value's bucket, so that nothing has to
be faded when time passes. `reference` is a multiple of the half-life and moves on once a sample is 100 half-lives
beyond it; weights are then multiplied by a power of two, which loses nothing. A percentile is the end of the first
bucket at which the running sum reaches that share of the total: never below the true one, at most one bucket above.

The arithmetic is that of Koordinator (pkg/util/histogram) and of the Vertical Pod Autoscaler, to the last bit. Both
call a bucket empty when it holds less than epsilon at the reference, and their lowest and highest bucket move only
then. With `compat` that is followed. By default these hold instead:

- A bucket counts while it holds epsilon in weights of the newest sample, so the highest one, and with it the percentile
  1, fades: a single sample of weight 1 and an epsilon of 1e-4 count for 13 half-lives. Theirs stays until `reference`
  moves.
- A histogram with any weight reads from what it has. Theirs reads 0 when its lowest bucket holds less than epsilon, as
  it may after a restart.
- A histogram without weight reads NaN, not 0: of a peak that is not known nothing may be given away.
- All weights follow when `reference` moves, not only those between the lowest and the highest.

Bad input: a sample whose value, weight or time is NaN or infinite, or whose weight is below 0, is no sample. A value
below 0 counts as 0. A sample older than the newest one counts as much less as if it had come in time; one from the
future makes all before it count less, which only time undoes: clocks are judged before samples come here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from processors.prediction.histogram import elementary
from processors.prediction.histogram.bucket import Options
from processors.rows import table

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_MOST_HALF_LIVES = 100
_YEAR_ONE_SECONDS = -62_135_596_800  # references are multiples counted from 0001-01-01 UTC, as Go's Time.Round has it
_CHUNK = 512  # rows whose sums stay in the processor's cache


class State(NamedTuple):
    """Histograms, one a row.

    Attributes:
        weights: (rows, buckets) weight as of `reference`; half as long numbers are exact enough for percentiles.
        total: (rows,) sum of all weights, in the order in which they came.
        low: (rows,) lowest bucket that reached epsilon; the last one if none did.
        high: (rows,) highest bucket that reached epsilon; 0 if none did.
        reference: (rows,) seconds UTC at which a sample counts its own weight; NaN before the first, and without decay.
        newest: (rows,) what the newest sample would count with weight 1; 0 before the first.
    """

    weights: NDArray[np.floating]
    total: Array
    low: Rows
    high: Rows
    reference: Array
    newest: Array


def init(rows: int, options: Options, weight: type[np.floating] = np.float64) -> State:
    """Return histograms without samples; `weight` is the type of the weights."""
    return State(
        weights=np.zeros((rows, options.count), dtype=weight),
        total=np.zeros(rows),
        low=np.full(rows, options.count - 1, dtype=np.intp),
        high=np.zeros(rows, dtype=np.intp),
        reference=np.full(rows, np.nan),
        newest=np.zeros(rows),
    )


def add(
    state: State,
    values: Array,
    weights: ArrayLike,
    at_seconds: ArrayLike,
    *,
    options: Options,
    half_life_seconds: float | None,
    compat: bool = False,
) -> State:
    """Take in at most one sample of each row; several of one row come in several calls, in the order of arrival.

    Args:
        state: Histograms so far.
        values: (rows,) in the unit of the buckets; NaN: no sample.
        weights: (rows,) or one for all, 0 or more.
        at_seconds: (rows,) or one for all, seconds UTC of the samples.
        options: Buckets.
        half_life_seconds: Age at which a sample counts half; None: all count alike for ever.
        compat: Follow Koordinator where it differs.

    Raises:
        ValueError: The half-life is not above 0.
    """
    state, live, amount, factor = _weigh(state, values, weights, at_seconds, half_life_seconds, options, compat)
    rows = np.flatnonzero(live)
    buckets = options.find(values)[rows]
    grown, total = state.weights.copy(), state.total.copy()
    grown[rows, buckets] += amount[rows]
    total[rows] += amount[rows]
    filled = grown[rows, buckets] >= options.epsilon
    reached, buckets = rows[filled], buckets[filled]
    low, high = state.low.copy(), state.high.copy()
    low[reached] = np.minimum(low[reached], buckets)
    high[reached] = np.maximum(high[reached], buckets)
    newest = np.maximum(state.newest, np.where(live, factor, 0.0))
    return State(grown, total, low, high, state.reference, newest)


def empty(state: State, *, options: Options, compat: bool = False) -> NDArray[np.bool_]:
    """Return which rows (rows,) have nothing to read from."""
    if compat:
        lowest: NDArray[np.bool_] = state.weights[np.arange(len(state.low)), state.low] < options.epsilon
        return lowest
    return np.logical_not((state.weights > 0.0).any(axis=1))


def percentile(state: State, fractions: Sequence[float], *, options: Options, compat: bool = False) -> Array:
    """Read percentiles (rows, fractions), in the unit of the buckets.

    Args:
        state: Histograms.
        fractions: Of the weight, 0..1; below 0 counts as 0, above 1 as 1.
        options: Buckets.
        compat: Follow Koordinator where it differs: an empty histogram reads 0 instead of NaN.

    Raises:
        ValueError: A fraction is NaN.
    """
    shares = np.asarray(fractions, dtype=np.float64)
    if np.isnan(shares).any():
        raise ValueError(f"fractions must be numbers, not {list(fractions)}")
    ends = options.ends
    values = np.empty((len(state.total), len(shares)))
    for start in range(0, len(state.total), _CHUNK):
        rows = slice(start, start + _CHUNK)
        part = State._make(array[rows] for array in state)
        buckets = _scan(part, shares) if compat else _read(part, np.clip(shares, 0.0, 1.0), options.epsilon)
        nothing = empty(part, options=options, compat=compat)[:, np.newaxis]
        values[rows] = np.where(nothing, 0.0 if compat else np.nan, ends[buckets])
    return values


def _scan(state: State, shares: Array) -> Rows:
    """Return the buckets (rows, shares) between the lowest and the highest; only those weights are summed."""
    columns = np.arange(state.weights.shape[1])
    inside = np.where(columns >= state.low[:, np.newaxis], state.weights, 0.0)
    buckets = _first(inside, state.total, shares, state.high)
    return np.clip(buckets, state.low[:, np.newaxis], state.high[:, np.newaxis])


def _read(state: State, shares: Array, epsilon: float) -> Rows:
    """Return the buckets (rows, shares) by all weights, moved in to those that still count."""
    last = np.full(len(state.total), state.weights.shape[1] - 1)
    buckets = _first(state.weights, state.total, shares, last)
    held = np.take_along_axis(state.weights, buckets, axis=1)
    least = np.maximum(epsilon * state.newest, np.finfo(np.float64).smallest_subnormal)[:, np.newaxis]
    edge = np.flatnonzero((held < least).any(axis=1))
    counted = state.weights[edge] >= least[edge]
    # Where none counts, as when all samples were late, any weight does.
    counted = np.where(counted.any(axis=1, keepdims=True), counted, state.weights[edge] > 0.0)
    low, high = np.argmax(counted, axis=1), _last(counted)
    buckets[edge] = np.clip(buckets[edge], low[:, np.newaxis], high[:, np.newaxis])
    return buckets


def _first(weights: NDArray[np.floating], total: Array, shares: Array, otherwise: Rows) -> Rows:
    """Return the first buckets (rows, shares) at which the running sum reaches each share of the total."""
    used = np.flatnonzero(weights.any(axis=0))
    if not len(used):
        return np.broadcast_to(otherwise[:, np.newaxis], (len(total), len(shares))).copy()
    summed = np.cumsum(weights[:, used[0] : used[-1] + 1], axis=1, dtype=np.float64)
    buckets = np.empty((len(total), len(shares)), dtype=np.intp)
    for column, share in enumerate(shares):
        threshold = share * total
        reached = used[0] + np.argmax(summed >= threshold[:, np.newaxis], axis=1)
        buckets[:, column] = np.where(summed[:, -1] >= threshold, reached, otherwise)
    return buckets


def _last(chosen: NDArray[np.bool_]) -> Rows:
    """Return the last chosen column of each row, the last one of all where none is."""
    last: Rows = chosen.shape[1] - 1 - np.argmax(chosen[:, ::-1], axis=1)
    return last


def _weigh(
    state: State,
    values: Array,
    weights: ArrayLike,
    at_seconds: ArrayLike,
    half_life: float | None,
    options: Options,
    compat: bool,
) -> tuple[State, NDArray[np.bool_], Array, Array]:
    """Return the state with references that fit the samples, which rows have one, its weight, and the decay factor."""
    weight = np.broadcast_to(np.asarray(weights, dtype=np.float64), values.shape)
    live = np.isfinite(values) & np.isfinite(weight) & (weight >= 0.0)
    factor = np.ones(len(values))
    if half_life is not None:
        _check_half_life(half_life)
        at = np.broadcast_to(np.asarray(at_seconds, dtype=np.float64), values.shape)
        live &= np.isfinite(at)
        far = live & ~(at <= state.reference + _MOST_HALF_LIVES * half_life)
        state = _move(state, np.where(far, at, np.nan), half_life, options, compat)
        factor = elementary.exp2((np.where(live, at, np.nan) - state.reference) / half_life)
    with np.errstate(over="ignore", invalid="ignore"):
        amount = weight * factor
    return state, live & np.isfinite(amount), amount, factor


def _move(state: State, to: Array, half_life: float, options: Options, compat: bool) -> State:
    """Move references that are before `to` (rows,) to the half-life nearest to it, ties to the later; NaN: not."""
    moved = np.flatnonzero(~np.isnan(to) & ~(state.reference >= to))
    if not len(moved):
        return state
    past = np.mod(to[moved] - _YEAR_ONE_SECONDS % half_life, half_life)
    nearest = to[moved] - past + np.where(past + past < half_life, 0.0, half_life)
    part = table.take(state, moved)
    # Nothing is to be multiplied before the first sample.
    passed = np.nan_to_num((part.reference - nearest) / half_life)
    factor = np.ldexp(1.0, np.floor(np.maximum(passed, -5000.0) + 0.5).astype(np.int64))
    chosen: NDArray[np.bool_] | bool = _between(part.weights, part.low, part.high) if compat else True
    weights = np.where(chosen, part.weights * factor[:, np.newaxis], part.weights).astype(part.weights.dtype)
    low, high = _trim(weights, part.low, part.high, options.epsilon)
    faded = State(weights, part.total * factor, low, high, nearest, part.newest * factor)
    state = table.take(state, np.arange(len(state.total)))
    table.put(state, moved, faded)
    return state


def _trim(weights: NDArray[np.floating], low: Rows, high: Rows, epsilon: float) -> tuple[Rows, Rows]:
    """Return the lowest and the highest bucket, moved in to where epsilon is reached."""
    filled = (weights >= epsilon) & _between(weights, low, high)
    some = filled.any(axis=1)
    lowest = np.where(some, np.argmax(filled, axis=1), weights.shape[1] - 1)
    return lowest, np.where(some, _last(filled), 0)


def _between(weights: NDArray[np.floating], low: Rows, high: Rows) -> NDArray[np.bool_]:
    columns = np.arange(weights.shape[1])
    between: NDArray[np.bool_] = (columns >= low[:, np.newaxis]) & (columns <= high[:, np.newaxis])
    return between


def _check_half_life(seconds: float) -> None:
    if not 0.0 < seconds < np.inf:
        raise ValueError(f"half_life_seconds must be above 0 and finite, not {seconds}; None is without decay")
