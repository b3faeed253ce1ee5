"""Spikes by smoothed z-score: a sample far from the recent mean, where spikes barely move that mean.

PRONTO tracks projections of usage and rejects jobs while they spike (CARICO dissertation, section 2.2.9); it does not
name its detector, so this is the robust peak detection known from Stack Overflow (question 22583391):

    spike_t = sign(x_t - mu) if |x_t - mu| > threshold * sd else 0
    f_t     = influence * x_t + (1 - influence) * f_(t-1) if spike_t else x_t

with mu and sd the mean and the population standard deviation of the last `lag` filtered values f.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class State(NamedTuple):
    """What the next sample is held against: `filtered` (series, lag), oldest first; NaN until so many came."""

    filtered: Array


def init(series: int, *, lag: int) -> State:
    """Return the state before any sample."""
    return State(np.full((series, lag), np.nan))


def update(state: State, samples: Array, *, threshold: float, influence: float) -> tuple[State, npt.NDArray[np.int8]]:
    """Mark the spikes among the next samples; how they are cut into calls does not change the result.

    The first `lag` known samples are never spikes. A missing sample is no spike and changes nothing.

    Args:
        state: What the last call returned, or `init`.
        samples: (series, samples); NaN = missing.
        threshold: Standard deviations beyond which a sample is a spike.
        influence: Weight of a spike in the filtered series, 0..1.

    Returns:
        The state, and 1, -1 or 0 for a spike up, a spike down and none, in the shape of `samples`.
    """
    filtered = state.filtered
    spikes = np.zeros(samples.shape, dtype=np.int8)
    for index in range(samples.shape[1]):
        sample = samples[:, index]
        filtered, spikes[:, index], _ = step(filtered, sample, threshold=threshold, influence=influence)
    return State(filtered), spikes


def step(
    filtered: Array, sample: Array, *, threshold: float, influence: float
) -> tuple[Array, npt.NDArray[np.int8], Array]:
    """Mark the spikes among one sample of each series.

    Args:
        filtered: (series, lag), as in the state.
        sample: (series,); NaN = missing.
        threshold: Standard deviations beyond which it is a spike.
        influence: Weight of a spike in the filtered series, 0..1.

    Returns:
        The filtered values after it, the marks (series,), and the mean (series,) that it was held against.
    """
    by_age = np.array(filtered.T, order="C")  # always a copy, changed below
    mean = _mean(by_age)
    by_age -= mean
    np.multiply(by_age, by_age, out=by_age)
    deviation = _mean(by_age) ** 0.5
    away = sample - mean
    spike = np.abs(away) > threshold * deviation
    moved = np.empty_like(filtered)
    moved[:, :-1] = filtered[:, 1:]
    moved[:, -1] = np.where(spike, influence * sample + (1 - influence) * filtered[:, -1], sample)
    missing = np.flatnonzero(np.isnan(sample))
    moved[missing] = filtered[missing]
    return moved, np.where(spike, np.sign(away), 0.0).astype(np.int8), mean


def _mean(values: Array) -> Array:
    """Return the means (series,) of values (lag, series)."""
    # One row after the other, so the order of the sum never depends on how many series there are.
    total: Array = values[0].copy()
    for row in values[1:]:
        total += row
    total /= len(values)
    return total
