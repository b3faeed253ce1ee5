"""Running median: short spikes vanish, steps stay.

Container events shake a node's metrics for about 0.2 s and must not reach the model, while a lasting change must be
followed soon (CARICO dissertation, section 4.2.2). The median of the last seven samples at 10 Hz does both with
nothing to tune: a pulse of up to three samples leaks nothing, and a step is followed in full at its fourth sample.

For seven samples without gaps no sorting is needed. Six of the seven are two triples; with each triple sorted as
a0 <= a1 <= a2 and b0 <= b1 <= b2, the third and the fourth smallest of the six are

    lower = min(a2, b2, max(a0, b1), max(a1, b0))        upper = max(a0, b0, min(a1, b2), min(a2, b1))

because the k-th smallest of two sorted lists is the least max(a_i, b_j) over all i + j = k. The median of all seven
is the seventh sample, clipped to [lower, upper]. Sorted triples serve several windows, so a median costs 18
minima and maxima of whole arrays.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Nodes worked on at once: their intermediate arrays stay in the processor's cache through all passes.
_TILE = 64


class State(NamedTuple):
    """What the next median needs: `window` (nodes, size - 1, metrics), the newest samples, oldest first."""

    window: Array


def init(nodes: int, metrics: int, *, size: int) -> State:
    """Return the state before any sample: all missing."""
    return State(np.full((nodes, size - 1, metrics), np.nan))


def update(state: State, samples: Array, *, size: int) -> tuple[State, Array]:
    """Smooth the next samples; how they are cut into calls does not change the result.

    A missing sample is skipped: the median is that of the known samples among the last `size`, for an even count the
    mean of the middle two, and missing if none is known.

    Args:
        state: What the last call returned, or `init`.
        samples: (nodes, samples, metrics), at least one sample; NaN = missing.
        size: Length of the window in samples, the newest included.

    Returns:
        The state, and the smoothed samples in the shape of `samples`.

    Raises:
        ValueError: `state` was made for another size.

    >>> update(init(1, 1, size=3), np.array([[[1.0], [9.0], [2.0], [3.0]]]), size=3)[1].ravel()
    array([1., 5., 2., 3.])
    """
    if state.window.shape[1] != size - 1:
        raise ValueError(
            f"size is {size} samples, but the state's window holds {state.window.shape[1]}, not {size - 1}"
        )
    series = np.concatenate((state.window, samples), axis=1)
    series += 0.0  # -0.0 becomes 0.0: which of the two a minimum returns depends on the position in the array
    windows = np.lib.stride_tricks.sliding_window_view(series, size, axis=1)
    if size == 7:
        smoothed = _median_of_seven(series)
        gaps = np.isnan(smoothed)  # minima and maxima pass a NaN on, so these are the windows with a missing sample
        if gaps.any():
            smoothed[gaps] = _median_of_known(windows[gaps])
    else:
        smoothed = _median_of_known(windows)
    return State(series[:, samples.shape[1] :].copy()), smoothed


def _median_of_seven(series: Array) -> Array:
    nodes, length, metrics = series.shape
    samples = length - 6
    smoothed = np.empty((nodes, samples, metrics))
    for start in range(0, nodes, _TILE):
        tile = np.ascontiguousarray(series[start : start + _TILE].transpose(1, 0, 2))
        triples = _sorted_triples(tile[1:])
        a0, a1, a2 = (rank[:samples] for rank in triples)
        b0, b1, b2 = (rank[3:] for rank in triples)
        lower = np.minimum(np.minimum(a2, b2), np.minimum(np.maximum(a0, b1), np.maximum(a1, b0)))
        upper = np.maximum(np.maximum(a0, b0), np.maximum(np.minimum(a1, b2), np.minimum(a2, b1)))
        median = np.maximum(lower, np.minimum(tile[:samples], upper))
        smoothed[start : start + _TILE] = median.transpose(1, 0, 2)
    return smoothed


def _sorted_triples(tile: Array) -> tuple[Array, Array, Array]:
    first, second, third = tile[:-2], tile[1:-1], tile[2:]
    low, high = np.minimum(first, second), np.maximum(first, second)
    middle = np.minimum(high, third)
    return np.minimum(low, middle), np.maximum(low, middle), np.maximum(high, third)


def _median_of_known(windows: Array) -> Array:
    ordered = np.sort(windows, axis=-1)  # missing samples come last
    count = np.count_nonzero(~np.isnan(windows), axis=-1)[..., np.newaxis]
    lower = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, windows.shape[-1] - 1), axis=-1)
    median: Array = (0.5 * (lower + upper))[..., 0]
    return median


class RunningMedian:
    """The form `running_median`."""

    name = "running_median"

    def __init__(self, size: int) -> None:
        """Take the median of so many samples."""
        self._size = size

    @property
    def reach(self) -> int:
        """Samples of the window before the newest."""
        return self._size - 1

    def init(self, nodes: int, metrics: int) -> State:
        """Return the state before any sample."""
        return init(nodes, metrics, size=self._size)

    def update(self, state: tuple[Array, ...], samples: Array, step: Array) -> tuple[State, Array]:  # noqa: ARG002
        """Smooth the next samples; a median does not need to know how far apart they are."""
        return update(State(*state), samples, size=self._size)
