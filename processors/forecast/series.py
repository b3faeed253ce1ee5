"""What was observed of each workload, on one common time axis, as far back as its own window reaches."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class State(NamedTuple):
    """Observations.

    Attributes:
        at_us: (observations,) event times, rising.
        values: (workloads, resources, observations) amounts; NaN: missing, or older than the workload's window.
    """

    at_us: NDArray[np.int64]
    values: Array


def init(resources: int) -> State:
    """Return the state without workloads and observations."""
    return State(np.zeros(0, dtype=np.int64), np.zeros((0, resources, 0)))


def extend(state: State, workloads: int) -> State:
    """Return the state with so many more workloads, of which nothing was observed."""
    more = np.full((workloads, *state.values.shape[1:]), np.nan)
    return state._replace(values=np.concatenate((state.values, more)))


def update(state: State, at_us: int, amounts: Array, window: Array, *, limit: int) -> State:
    """Add one observation of every workload.

    An observation that is not older than this one is of a clock that was set back, or the same again; it is dropped.

    Args:
        state: Observations so far.
        at_us: Event time.
        amounts: (workloads, resources); what is negative or not finite is missing.
        window: (workloads,) seconds that the workload's observations are kept.
        limit: Most observations of a workload, at least 1; the oldest go first.
    """
    before = state.at_us < at_us
    sound = np.where(np.isfinite(amounts) & (amounts >= 0), amounts, np.nan)
    times = np.append(state.at_us[before], np.int64(at_us))
    values = np.concatenate((state.values[:, :, before], sound[:, :, None]), axis=2)
    fresh = (at_us - times) / 1e6 < window[:, None]
    values = np.where(fresh[:, None, :], values, np.nan)
    kept = np.asarray(np.isfinite(values).any(axis=(0, 1)))
    kept[:-limit] = False
    return State(times[kept], values[:, :, kept])


def seconds(state: State, at_us: int) -> Array:
    """Return when observations were made (observations,), seconds before an event time, so at most 0."""
    return (state.at_us - at_us) / 1e6


def observed(state: State) -> tuple[NDArray[np.int64], Array]:
    """Return how many observations each workload has (workloads,), and seconds from the first to the last (workloads,).

    A workload without observations has a span of 0.
    """
    seen = np.asarray(np.isfinite(state.values).any(axis=1))
    count = np.count_nonzero(seen, axis=1)
    if not len(state.at_us):
        return count, np.zeros(len(count))
    first = state.at_us[np.argmax(seen, axis=1)]
    last = state.at_us[::-1][np.argmax(seen[:, ::-1], axis=1)]
    return count, np.where(count > 0, (last - first) / 1e6, 0.0)
