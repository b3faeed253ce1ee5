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
        mean = _mean(filtered)
        deviation = _mean((filtered - mean[:, np.newaxis]) ** 2) ** 0.5
        spike = np.abs(sample - mean) > threshold * deviation
        spikes[:, index] = np.where(spike, np.sign(sample - mean), 0.0)
        damped = np.where(spike, influence * sample + (1 - influence) * filtered[:, -1], sample)
        moved = np.concatenate((filtered[:, 1:], damped[:, np.newaxis]), axis=1)
        filtered = np.where(np.isnan(sample)[:, np.newaxis], filtered, moved)
    return State(filtered), spikes


def _mean(values: Array) -> Array:
    # An accumulated sum adds in one order always; a plain one may depend on how many series there are.
    mean: Array = np.add.accumulate(values, axis=1)[:, -1] / values.shape[1]
    return mean
