"""Mean and variance of usage that fade with time.

A sample of age a weighs 2^(-a / half-life), so that old days are forgotten without being stored. Both are kept in the
form of West (1979, "Updating mean and variance estimates: an improved method"), which does not lose digits however
small the variance is beside the mean:

    W <- f W + w      m <- m + (w/W) (x - m)      S <- f S + w (x - m_old) (x - m_new)      variance = S / W

with f the factor by which the time since the newest sample fades, and w the weight of the new one: 1, or less if it
came late. So the state is that of all samples weighed by their age, in whatever order they came.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Times = NDArray[np.int64]

_LATEST_HALF_LIVES = 10.0


class State(NamedTuple):
    """What was seen of each row: a node, a class on a node, or a pod.

    Attributes:
        weight: (rows, resources) faded number of samples; 0: there was none.
        mean: (rows, resources) in cores and bytes; of no meaning where the weight is 0.
        squares: (rows, resources) faded sum of squared deviations from the mean.
        first_us: (rows,) oldest sample's time.
        at_us: (rows,) newest sample's time; of no meaning before the first.
    """

    weight: Array
    mean: Array
    squares: Array
    first_us: Times
    at_us: Times


def init(rows: int, resources: int) -> State:
    """Return the state before any sample."""
    wide, long = (rows, resources), np.zeros(rows, dtype=np.int64)
    return State(np.zeros(wide), np.zeros(wide), np.zeros(wide), long, long.copy())


def update(state: State, usage: Array, at_us: Times, *, half_life_seconds: float | Array) -> State:
    """Take in one sample of each row; the order of a row's samples does not matter.

    A sample that is older than the newest by more than ten half-lives would weigh nothing: its clock was set
    back. The row starts again with it; otherwise a clock that once was far ahead would stop all learning.

    Args:
        state: What the last call returned, or `init`.
        usage: (rows, resources), cores and bytes; NaN or infinite: no sample; below 0 counts as 0; above what the
            node has counts in full.
        at_us: (rows,) when it was measured.
        half_life_seconds: Age at which a sample weighs half, for all resources or per resource (resources,).

    Raises:
        ValueError: A half-life is not above 0.
    """
    half_life = np.asarray(half_life_seconds, dtype=np.float64)
    if not (half_life > 0).all():
        raise ValueError(f"half_life_seconds is {half_life_seconds}: it must be above 0 s")
    sampled = np.isfinite(usage)
    heard = sampled.any(axis=1)
    elapsed = (at_us - state.at_us) / 1e6
    restarts = heard & ((state.weight == 0).all(axis=1) | (elapsed < -_LATEST_HALF_LIVES * half_life.max()))
    elapsed = np.where(heard & ~restarts, elapsed, 0.0)[:, np.newaxis]
    fade = np.where(restarts[:, np.newaxis], 0.0, np.exp2(-np.maximum(elapsed, 0.0) / half_life))
    share = np.where(sampled, np.exp2(np.minimum(elapsed, 0.0) / half_life), 0.0)

    weight = state.weight * fade + share
    sample = np.where(sampled, np.maximum(usage, 0.0), 0.0)
    mean_before = np.where(state.weight * fade > 0, state.mean, sample)
    gain = np.divide(share, weight, out=np.zeros_like(weight), where=weight > 0)
    mean = np.where(sampled, mean_before + gain * (sample - mean_before), state.mean)
    squares = state.squares * fade + share * (sample - mean_before) * (sample - mean)
    return State(
        weight=weight,
        mean=mean,
        squares=np.maximum(squares, 0.0),
        first_us=np.where(restarts, at_us, np.where(heard, np.minimum(state.first_us, at_us), state.first_us)),
        at_us=np.where(restarts, at_us, np.where(heard, np.maximum(state.at_us, at_us), state.at_us)),
    )


def deviation(state: State) -> Array:
    """Return the standard deviation (rows, resources), of the population; NaN before the first sample."""
    variance = np.divide(state.squares, state.weight, out=np.full_like(state.mean, np.nan), where=state.weight > 0)
    root: Array = np.sqrt(variance)
    return root


def span_seconds(state: State) -> Array:
    """Return the time (rows,) between the oldest and the newest sample: how long the row has been learned from."""
    return (state.at_us - state.first_us) / 1e6
