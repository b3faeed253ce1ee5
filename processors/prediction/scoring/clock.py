"""Clocks that were set back: predictions that wait for a time that will not come for long."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import accuracy, conformal

Waiting = TypeVar("Waiting", conformal.State, accuracy.State)


def set_back(state: Waiting, at_us: NDArray[np.int64], gap_seconds: float) -> Waiting:
    """Return the state with a gap wherever the clock was set back by more than a gap; otherwise it waits for long.

    Args:
        state: Of some rows.
        at_us: (rows,) time of the next sample.
        gap_seconds: A clock that is set back by less is out of order.
    """
    back = state.at_us - at_us > gap_seconds * 1e6
    born_us = np.where(back[:, None], 0, state.waiting.born_us)
    return state._replace(at_us=np.where(back, 0, state.at_us), waiting=state.waiting._replace(born_us=born_us))
