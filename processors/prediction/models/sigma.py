"""Peak by N sigma: the mean of usage plus N standard deviations, as if usage were normally distributed.

Mean and variance fade: a sample of age a weighs 2^(-a / half-life), so that old days are forgotten without being
stored. Both are kept in the form of West (1979, "Updating mean and variance estimates: an improved method"), which
does not lose digits however small the variance is beside the mean:

    W <- f W + w      m <- m + (w/W) (x - m)      S <- f S + w (x - m_old) (x - m_new)      variance = S / W

with f the factor by which the time since the newest sample fades, and w the weight of the new one: 1, or less if it
came late. So the state is that of all samples weighed by their age, in whatever order they came.

Version 1 of Koordinator's proposal looks at the node's usage alone. Version 2 never goes below the sum over pods of
each pod's own mean and deviations; what runs outside of pods is given to it as one more pod. What ships in
Koordinator is neither.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import pod_sum

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

    A sample that is older than the newest by more than ten half-lives would weigh nothing: so late is no sample, but
    a clock that was set back. Its row begins anew with it, or a clock that once was far ahead would stop all learning.

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
    anew = heard & ((state.weight == 0).all(axis=1) | (elapsed < -_LATEST_HALF_LIVES * half_life.max()))
    elapsed = np.where(heard & ~anew, elapsed, 0.0)[:, np.newaxis]
    fade = np.where(anew[:, np.newaxis], 0.0, np.exp2(-np.maximum(elapsed, 0.0) / half_life))
    share = np.where(sampled, np.exp2(np.minimum(elapsed, 0.0) / half_life), 0.0)

    weight = state.weight * fade + share
    sample = np.where(sampled, np.maximum(usage, 0.0), 0.0)
    known = np.where(state.weight * fade > 0, state.mean, sample)
    gain = np.divide(share, weight, out=np.zeros_like(weight), where=weight > 0)
    mean = np.where(sampled, known + gain * (sample - known), state.mean)
    squares = state.squares * fade + share * (sample - known) * (sample - mean)
    return State(
        weight=weight,
        mean=mean,
        squares=np.maximum(squares, 0.0),
        first_us=np.where(anew, at_us, np.where(heard, np.minimum(state.first_us, at_us), state.first_us)),
        at_us=np.where(anew, at_us, np.where(heard, np.maximum(state.at_us, at_us), state.at_us)),
    )


def deviation(state: State) -> Array:
    """Return the standard deviation (rows, resources), of the population; NaN before the first sample."""
    variance = np.divide(state.squares, state.weight, out=np.full_like(state.mean, np.nan), where=state.weight > 0)
    root: Array = np.sqrt(variance)
    return root


def span_seconds(state: State) -> Array:
    """Return the time (rows,) between the oldest and the newest sample: how long the row has been learned from."""
    return (state.at_us - state.first_us) / 1e6


def peak(state: State, *, n: float) -> Array:
    """Predict each row's peak from its own usage alone (version 1).

    Args:
        state: What was seen.
        n: Standard deviations above the mean.

    Returns:
        (rows, resources), cores and bytes; NaN where nothing was seen. It may exceed what the node has.
    """
    high: Array = state.mean + n * deviation(state)
    return high


def peak_by_pods(pods: State, request: Array, row: NDArray[np.intp], rows: int, *, n: float) -> Array:
    """Predict each row's peak as the sum of its pods' peaks, as if all peaked at once.

    Args:
        pods: What was seen of each pod.
        request: (pods, resources), cores and bytes: what a pod counts of which nothing was seen yet; below 0 counts
            as 0. NaN: neither is known, and nor is the row's peak.
        row: (pods,) row of each pod; below 0: of none.
        rows: How many rows there are.
        n: Standard deviations above the mean.

    Returns:
        (rows, resources), cores and bytes; 0 for a row without pods.
    """
    own = peak(pods, n=n)
    return pod_sum.add(np.where(np.isnan(own), np.maximum(request, 0.0), own), row, rows)


def peak_of_both(node: State, pods: State, request: Array, row: NDArray[np.intp], *, n: float) -> Array:
    """Predict each row's peak as the greater of its own and of its pods' (version 2); arguments as above.

    Returns:
        (rows, resources), cores and bytes; NaN where one of both is not known.
    """
    return np.maximum(peak(node, n=n), peak_by_pods(pods, request, row, len(node.mean), n=n))
