"""How many scales above their base usage rose within the horizon, counted by time of day, and quantiles of that.

Counts are kept in bins of a tenth of a scale, for each resource and each of the equal parts of a UTC day.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Times = NDArray[np.int64]

_DAY_US = 86_400 * 10**6
_LOWEST, _WIDTH, _BINS = -5.0, 0.1, 500
_POOLED, _MOST_POOLED = 20.0, 200.0
_TAIL = 0.01
_LEAST_ASKED = 0.1  # of the probability; of fewer predictions than vouch for it none at all would be asked


class Table(NamedTuple):
    """What all rows together taught: `counts` (times of day, resources, bins) of z; equal parts of a UTC day."""

    counts: Array


def empty(resources: int, *, times: int = 24) -> Table:
    """Return the table before anything was learned, with a day in `times` parts."""
    return Table(np.zeros((times, resources, _BINS)))


def learn(table: Table, residual: Array, column: Rows, born_us: Times) -> Table:
    """Count some predictions.

    Args:
        table: What was learned.
        residual: (predictions,) z of each.
        column: (predictions,) its resource.
        born_us: (predictions,) when it was made.
    """
    times = time_of_day(born_us, len(table.counts))
    bin_number = np.clip((residual - _LOWEST) / _WIDTH, 0, _BINS - 1).astype(np.intp)
    counts = table.counts.copy()
    np.add.at(counts, (times, column, bin_number), 1.0)
    return Table(counts)


def quantile(table: Table, probability: float) -> Array:
    """Return z(p) (times of day, resources), the multiple of the scale that a share p of predictions rose above.

    A time of day with little evidence borrows from the others: as much as 20 predictions weigh, and as many more as it
    takes to see the probability twice, at most 200. Below one in a hundred too few were seen to count: there the tail
    is taken as exponential, with the mean excess that was seen. Of n predictions a share (p (n + 1) - 1) / n is asked,
    so that the next one rises above z(p) with the probability p, also if n is small; that is never above the highest
    that was seen unless the tail is.

    Args:
        table: What was learned.
        probability: Wanted share of violations, above 0 and below 1.

    Returns:
        NaN where nothing was learned of the resource.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must be above 0 and below 1, not {probability}")
    above = _share_above(table.counts, table.counts.sum(axis=0), _pooled(probability))
    own = table.counts.sum(axis=2)
    return _read(above, np.full(own.shape, probability), _behind(own, own.sum(axis=0), _pooled(probability)))


def quantiles(table: Table, time: int, probabilities: Array, *, wanted: Array | float, parts: int = 1) -> Array:
    """Return z(p) (resources, probabilities) as `quantile` does, at one time of day.

    Args:
        table: What was learned.
        time: Which part of the day.
        probabilities: (resources, probabilities), above 0 and below 1.
        wanted: The probability, or that of each resource, that decides how much is borrowed from other times of day.
        parts: How many parts of the day about this one count as the same time.
    """
    all_day = table.counts.sum(axis=0)
    is_known = all_day.any(axis=1)
    pooled = np.broadcast_to(_pooled(wanted), is_known.shape)[is_known]
    own, all_day = _about(table, time, parts)[is_known], all_day[is_known]
    above = _share_above(own[None], all_day, pooled)[0]
    behind = _behind(own.sum(axis=1), all_day.sum(axis=1), pooled)
    multiples = np.full(probabilities.shape, np.nan)
    multiples[is_known] = _read(above[:, None], probabilities[is_known], behind[:, None])
    return multiples


def reach(table: Table, horizon_seconds: float) -> int:
    """Return how many parts of the day count as the same time: predictions within a horizon see much the same hours.

    So a horizon of a day, of which each row teaches a few times a day, learns at all hours together.
    """
    times = len(table.counts)
    return min(max(round(horizon_seconds * 1e6 * times / _DAY_US), 1), times)


def stated(table: Table, probability: float) -> Array:
    """Return the probability of a violation (times of day, resources) that can be vouched for.

    That of n predictions none rose above a peak shows no less than 1 in n + 1; 1 where nothing was learned.
    """
    own = table.counts.sum(axis=2)
    return _stated(own, own.sum(axis=0), probability)


def stated_at(table: Table, time: int, probability: Array | float, *, parts: int = 1) -> Array:
    """Return what `stated` says (resources,) of one time of day; arguments as of `quantiles`."""
    return _stated(_about(table, time, parts).sum(axis=1), table.counts.sum(axis=(0, 2)), probability)


def fewest(table: Table, probability: Array | float, *, parts: int = 1) -> Array:
    """Return how many predictions vouch for a probability (resources,) at the time of day at which the fewest do.

    Args:
        table: What was learned.
        probability: The probability, or that of each resource, that decides how much is borrowed.
        parts: How many parts of the day about each one count as the same time.
    """
    own = table.counts.sum(axis=2)
    about: Array = np.sum([np.roll(own, part, axis=0) for part in range(parts)], axis=0)
    return np.asarray(_behind(about, own.sum(axis=0), _pooled(probability)).min(axis=0))


def fade(table: Table, factor: Array | float) -> Table:
    """Return the table with all that was learned weighing less, 0..1; of all resources, or of each (resources,)."""
    return Table(table.counts * np.broadcast_to(factor, table.counts.shape[1])[:, None])


def lengthen(table: Table, before_seconds: float, now_seconds: float) -> Table:
    """Return what a table that was learned at one horizon says of a longer one.

    Usage within the longer horizon is at most the highest of the q shorter ones in it, so P(z' > x) <= q P(z > x)
    (Boole's inequality): of the mean counts of the parts of the day that it touches, the highest 1 / q remain. That
    holds as far as base and scale stay those when the prediction was made. A shorter horizon is not above the longer
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


def _pooled(probability: Array | float) -> Array:
    """Return how many predictions of all day a time of day borrows at most."""
    return np.clip(2.0 / np.asarray(probability), _POOLED, _MOST_POOLED)


def _read(above: Array, probability: Array, behind: Array) -> Array:
    """Return z(p) of shares at or above each bin's lower edge (..., bins + 1), of p and of n (...); they broadcast."""
    share = np.divide(probability * (behind + 1.0) - 1.0, behind, out=np.zeros_like(probability), where=behind > 0)
    highest = _LOWEST + _WIDTH * np.count_nonzero(above > 0, axis=-1)
    asked = _reached(above, np.maximum(share, _LEAST_ASKED * probability))
    multiples: Array = np.minimum(asked, np.maximum(highest, _reached(above, probability)))
    return multiples


def _reached(above: Array, probability: Array) -> Array:
    """Return what a share p of those that were seen is above; arguments as of `_read`."""
    wanted = np.maximum(probability, _TAIL)[..., None]
    last, part, _ = _place(above, wanted)
    multiple = _LOWEST + _WIDTH * (np.maximum(last, 0) + part)
    if (probability < _TAIL).any():
        multiple = multiple + np.log(wanted / probability[..., None]) * _excess(above) / _TAIL
    multiples: Array = np.where(np.isnan(above[..., :1]), np.nan, multiple)[..., 0]
    return multiples


def _place(above: Array, wanted: Array) -> tuple[Rows, Array, Array]:
    """Return the last bin that so many are at or above, where in it they are, and the share above it, each (..., 1)."""
    last = np.count_nonzero(above >= wanted, axis=-1, keepdims=True) - 1
    above = np.broadcast_to(above, (*last.shape[:-1], above.shape[-1]))
    high, low = (np.take_along_axis(above, np.clip(last + more, 0, _BINS), axis=-1) for more in (0, 1))
    return last, np.divide(high - wanted, high - low, out=np.zeros_like(high), where=high > low), low


def _excess(above: Array) -> Array:
    """Return by how many scales usage rises above z(`_TAIL`), times how often (..., 1): the area under the tail."""
    last, part, low = _place(above, np.full(above.shape[:-1], _TAIL)[..., None])
    beyond = np.where(np.arange(_BINS + 1) > last, above, 0.0).sum(axis=-1, keepdims=True)
    area: Array = _WIDTH * (beyond - low / 2 + (1 - part) * (_TAIL + low) / 2)
    return area


def _behind(own: Array, all_day: Array, pooled: Array) -> Array:
    """Return how many predictions a quantile is of: those of the time of day, and those it borrows of all day."""
    return own + np.minimum(all_day - own, pooled)


def _stated(own: Array, all_day: Array, probability: Array | float) -> Array:
    least: Array = 1.0 / (_behind(own, all_day, _pooled(probability)) + 1.0)
    return np.where(least < probability, probability, least)


def _about(table: Table, time: int, parts: int) -> Array:
    """Return the counts (resources, bins) of so many parts of the day about one."""
    times = (time - parts // 2 + np.arange(parts)) % len(table.counts)
    counts: Array = table.counts[times].sum(axis=0)
    return counts


def _share_above(own: Array, all_day: Array, pooled: Array) -> Array:
    """Return the share (times of day, resources, bins + 1) of z at or above each bin's lower edge.

    Args:
        own: (times of day, resources, bins) counts.
        all_day: (resources, bins) those of all times together.
        pooled: (resources,) or one for all, how many predictions of all day a time of day borrows at most.
    """
    evidence = all_day.sum(axis=1, keepdims=True)
    shape = np.divide(all_day, evidence, out=np.full_like(all_day, np.nan), where=evidence > 0)
    counts = own + np.minimum(evidence, pooled[..., None]) * shape
    above = np.zeros((*counts.shape[:2], _BINS + 1))
    above[..., :-1] = np.cumsum(counts[..., ::-1], axis=2)[..., ::-1]
    share: Array = above / above[..., :1]
    return share
