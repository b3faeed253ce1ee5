"""Predictions that wait for their future: when each was made, and the highest usage since.

A predicted peak can be judged only when its horizon has passed. Until then it waits in one of its row's slots; each
sample raises the highest usage of all that wait. While all slots are taken, a new prediction is not followed. After a
gap in the samples it is unknown how high usage was, so those that waited through it are dropped.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]


class State(NamedTuple):
    """What waits.

    Attributes:
        born_us: (rows, slots) time of the prediction; 0: the slot is free.
        highest: (rows, resources, slots) highest usage since; NaN: none was seen yet.
    """

    born_us: Times
    highest: Array


def init(rows: int, resources: int, slots: int) -> State:
    """Return free slots."""
    return State(np.zeros((rows, slots), dtype=np.int64), np.full((rows, resources, slots), np.nan))


def observe(state: State, usage: Array, seen: Mask, broken: Mask) -> State:
    """Let one sample raise what waits.

    Args:
        state: What waits.
        usage: (rows, resources) of this sample; NaN: missing.
        seen: (rows,) True: the row has a new sample.
        broken: (rows,) True: there was a gap before it; the row's slots are freed.
    """
    counted = (seen[:, None] & ~broken[:, None] & (state.born_us > 0))[:, None, :]
    highest = np.where(counted, np.fmax(state.highest, usage[:, :, None]), state.highest)
    return State(np.where(broken[:, None], 0, state.born_us), highest)


def due(state: State, at_us: Times, seen: Mask, *, horizon_seconds: float) -> Mask:
    """Return (rows, slots) True where the horizon has passed."""
    old = at_us[:, None] - state.born_us >= horizon_seconds * 1e6
    return seen[:, None] & (state.born_us > 0) & old


def release(state: State, done: Mask) -> State:
    """Free slots (rows, slots) whose prediction was judged."""
    return state._replace(born_us=np.where(done, 0, state.born_us))


def admit(state: State, at_us: Times, seen: Mask, *, interval_seconds: float) -> tuple[State, Mask]:
    """Give a slot to each row that has a free one and whose newest prediction is at least an interval old.

    Returns:
        The state, and (rows, slots) True at the slot that is the new prediction's.
    """
    room = state.born_us.min(axis=1) == 0
    wanted = seen & room & (at_us - state.born_us.max(axis=1) >= interval_seconds * 1e6)
    slots = np.arange(state.born_us.shape[1])
    chosen = wanted[:, None] & (slots == state.born_us.argmin(axis=1)[:, None])
    highest = np.where(chosen[:, None, :], np.nan, state.highest)
    return State(np.where(chosen, at_us[:, None], state.born_us), highest), chosen
