"""Peaks exactly as Google's published simulator defines them, for back-tests.

The definitions are those of googleinterns/cluster-resource-forecast, which belongs to Bashir et al., "Take it to the
limit" (EuroSys 2021): one metric, one snapshot of all tasks per step. A task is cold until it has `minimum_samples`
samples, but at least two, and a cold task counts its whole limit. A task that is absent from a snapshot is forgotten,
and is cold again when it returns. Samples of different tasks are put side by side by how many came after them, not by
their time.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import pod_sum

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

PHI = 0.9


class State(NamedTuple):
    """The last samples of each task.

    Attributes:
        usage: (tasks, history), newest first; NaN: there was none.
        limit: (tasks, history), what the task was allowed then; NaN as above.
        samples: (tasks,) how many came since the task was last absent.
    """

    usage: Array
    limit: Array
    samples: NDArray[np.int64]


def init(tasks: int, *, history: int) -> State:
    """Return the state of tasks that are all absent; `history` samples of each will be kept."""
    nothing = np.full((tasks, history), np.nan)
    return State(nothing, nothing.copy(), np.zeros(tasks, dtype=np.int64))


def update(state: State, usage: Array, limit: Array, *, cap: bool = True) -> State:
    """Take in one snapshot.

    Args:
        state: What the last call returned, or `init`.
        usage: (tasks,); NaN: the task is absent. Below 0 is taken as it is.
        limit: (tasks,); NaN: the task is absent.
        cap: Usage above the limit counts as the limit.
    """
    present = ~(np.isnan(usage) | np.isnan(limit))
    sample = np.minimum(usage, limit) if cap else usage

    def shifted(past: Array, newest: Array) -> Array:
        moved = np.concatenate((newest[:, np.newaxis], past[:, :-1]), axis=1)
        return np.where(present[:, np.newaxis], moved, np.nan)

    return State(
        usage=shifted(state.usage, sample),
        limit=shifted(state.limit, limit),
        samples=np.where(present, state.samples + 1, 0),
    )


def limits(state: State, row: Rows, rows: int) -> Array:
    """Return the limits (rows,) of the tasks that are present, together."""
    return pod_sum.add(np.nan_to_num(state.limit[:, 0]), row, rows)


def n_sigma(state: State, row: Rows, rows: int, *, n: float, minimum_samples: int) -> Array:
    """Predict by mean and standard deviation of the ratio of all warm tasks' usage to all warm tasks' limit.

    The i-th newest ratio is made of the tasks that have so many samples; it is 0 if they are allowed nothing. The
    deviation is that of a sample (divided by one less than there are ratios). The ratio predicted is 1 at most, and
    is taken of the limits now. With fewer than two ratios there is no deviation: the published code fails there, here
    the whole limit counts.

    Args:
        state: Tasks' last samples.
        row: (tasks,) row, a machine, of each task; below 0: of none.
        rows: How many rows there are.
        n: Standard deviations above the mean.
        minimum_samples: Samples from which on a task is warm.

    Returns:
        (rows,) in the unit of the limit; 0 for a row without tasks.
    """
    warm = _warm(state, minimum_samples)
    counted = warm[:, np.newaxis] & ~np.isnan(state.usage)
    used = pod_sum.add(np.where(counted, state.usage, 0.0), row, rows)
    allowed = pod_sum.add(np.where(counted, state.limit, 0.0), row, rows)
    there = pod_sum.add(counted.astype(np.int64), row, rows) > 0
    ratio = np.divide(used, allowed, out=np.zeros_like(used), where=allowed > 0)
    count = np.count_nonzero(there, axis=1)
    mean = np.where(there, ratio, 0.0).sum(axis=1) / np.maximum(count, 1)
    squares = np.where(there, ratio - mean[:, np.newaxis], 0.0) ** 2
    deviation = np.sqrt(squares.sum(axis=1) / np.maximum(count - 1, 1))
    part = np.where(count > 1, np.minimum(mean + n * deviation, 1.0), 1.0)
    now = np.nan_to_num(state.limit[:, 0])
    warm_limit = pod_sum.add(np.where(warm, now, 0.0), row, rows)
    predicted: Array = part * warm_limit + pod_sum.add(np.where(warm, 0.0, now), row, rows)
    return predicted


def percentile(state: State, row: Rows, rows: int, *, fraction: float, minimum_samples: int) -> Array:
    """Predict by the sum of tasks' percentiles of usage over limit, each times the task's limit now (RC-like).

    Percentiles are numpy's linear ones. A sample of a task that was allowed nothing has the ratio 0.

    Args:
        state: Tasks' last samples.
        row: (tasks,) row, a machine, of each task; below 0: of none.
        rows: How many rows there are.
        fraction: Which percentile, 0..1.
        minimum_samples: Samples from which on a task is warm.

    Returns:
        (rows,) in the unit of the limit; 0 for a row without tasks.

    Raises:
        ValueError: The fraction is not within 0..1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction}: it must be within 0..1")
    missing = np.isnan(state.usage)
    ratio = np.divide(state.usage, state.limit, out=np.zeros_like(state.usage), where=state.limit > 0)
    high = _linear(np.sort(np.where(missing, np.nan, ratio), axis=1), np.count_nonzero(~missing, axis=1), fraction)
    now = np.nan_to_num(state.limit[:, 0])
    return pod_sum.add(np.where(_warm(state, minimum_samples), np.nan_to_num(high) * now, now), row, rows)


def borg_default(limit: Array, row: Rows, rows: int, *, phi: float = PHI) -> Array:
    """Predict `phi` times the sum of limits (tasks,); NaN: the task is absent. Returns (rows,)."""
    return phi * pod_sum.add(np.nan_to_num(limit), row, rows)


def maximum(*peaks: Array) -> Array:
    """Return the greatest of several predictors' peaks, element by element; NaN where any is not known."""
    greatest: Array = np.maximum.reduce(peaks)
    return greatest


def _warm(state: State, minimum_samples: int) -> NDArray[np.bool_]:
    # The published code moves a task from cold to warm only when a further sample comes, so the first never does.
    warm: NDArray[np.bool_] = state.samples >= max(minimum_samples, 2)
    return warm


def _linear(ordered: Array, count: NDArray[np.intp], fraction: float) -> Array:
    """Interpolate between the two samples around the percentile; `ordered` (tasks, history) has its NaN behind."""
    position = fraction * np.maximum(count - 1, 0)
    below = np.floor(position).astype(np.intp)
    tasks = np.arange(len(ordered))
    low, high = ordered[tasks, below], ordered[tasks, np.minimum(below + 1, np.maximum(count - 1, 0))]
    between: Array = low + (high - low) * (position - below)
    return between
