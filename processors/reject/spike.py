"""Spikes of projections: one smoothed z-score per direction, which follows the direction when it changes its place.

PRONTO tracks each projection in a sliding window and finds its spikes (CARICO dissertation, section 2.2.9); the
detector is `zscore`. Two things are added. A departure below `floor` does not count: on an idle node the deviation is
that of rounding, and everything would be a spike. And a window may be moved or emptied, as directions swap or turn.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processors.smoothing import zscore

Array = npt.NDArray[np.float64]


class State(NamedTuple):
    """The windows: `filtered` (nodes, directions, lag), oldest first; NaN until so many values came."""

    filtered: Array


def init(nodes: int, directions: int, *, lag: int) -> State:
    """Return the state before any projection."""
    return State(np.full((nodes, directions, lag), np.nan))


def update(
    state: State, projections: Array, *, threshold: float, influence: float, floor: float
) -> tuple[State, npt.NDArray[np.int8]]:
    """Mark the directions whose next projection is a spike; a missing one is none and changes nothing.

    Args:
        state: What the last call returned, or `init`.
        projections: (nodes, directions), in units of usage; NaN = missing.
        threshold: Standard deviations beyond which a projection is a spike.
        influence: Weight of a spike in its window, 0..1.
        floor: Departure from the mean, in units of usage, up to which nothing is a spike.

    Returns:
        The state, and 1, -1 or 0 for a spike up, a spike down and none, in the shape of `projections`.
    """
    series, values = state.filtered.reshape(-1, state.filtered.shape[2]), projections.reshape(-1)
    moved, marks, mean = zscore.step(series, values, threshold=threshold, influence=influence)
    spikes = np.where(np.abs(values - mean) > floor, marks, np.int8(0))
    return State(moved.reshape(state.filtered.shape)), spikes.reshape(projections.shape)


def judged(state: State) -> npt.NDArray[np.bool_]:
    """Tell which directions (nodes, directions) have a full window, so that their next projection can be a spike."""
    return np.logical_not(np.isnan(state.filtered[:, :, 0]))


def follow(state: State, source: npt.NDArray[np.intp], kept: npt.NDArray[np.bool_]) -> State:
    """Return the windows in their directions' new order, emptied where a direction is new.

    Args:
        state: Windows in the old order.
        source: (nodes, directions), the old place of each direction.
        kept: (nodes, directions), whether it is still the same direction.
    """
    filtered = state.filtered.copy()
    # Most directions stay where they are, so only the others are moved.
    node, direction = np.nonzero(kept & (source != np.arange(source.shape[1])))
    filtered[node, direction] = state.filtered[node, source[node, direction]]
    filtered[~kept] = np.nan
    return State(filtered)
