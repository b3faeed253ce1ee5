"""How steady what the Mid tier gets would have been: the share of a node that our predictor leaves, hour by hour."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import slew
from schemas.messages.prediction import FORMULAS
from schemas.sections.prediction import Predict
from spazio.backtest import trace

Array = NDArray[np.float64]

AT_ONCE = 3600.0  # of a node an hour: as fast as predictions
RISES = (AT_ONCE, 0.25, Predict().mid_rise)
_WITHIN_SECONDS = 2 * 3600


class Stability(NamedTuple):
    """What was lent on one day with one bound; shares of a node, means over nodes.

    Attributes:
        day: The day.
        rise_per_hour: The bound, `predict.mid_rise`.
        lent: Mean over the day.
        movement: Sum of all changes.
        rise: Highest rise within two hours.
    """

    day: str
    rise_per_hour: float
    lent: float
    movement: float
    rise: float


def measure(day: str, peaks: Array) -> list[Stability]:
    """Return one row for each bound; `peaks` (nodes, samples) are shares of the limit, and the rest is lent."""
    rows = []
    for bound in RISES:
        lent = _lent(1.0 - np.minimum(peaks, 1.0), bound)
        window = np.lib.stride_tricks.sliding_window_view(lent, _WITHIN_SECONDS // trace.SAMPLE_SECONDS + 1, axis=1)
        rise = (window[..., -1] - window.min(axis=2)).max(axis=1)
        movement = np.abs(np.diff(lent, axis=1)).sum(axis=1)
        rows.append(Stability(day, bound, *(float(part.mean()) for part in (lent, movement, rise))))
    return rows


def _lent(wanted: Array, rise_per_hour: float) -> Array:
    nodes, samples = wanted.shape
    state, lent = slew.init(nodes), np.empty_like(wanted)
    whole, wide = np.ones((nodes, 2)), (nodes, len(FORMULAS), 2)
    own = FORMULAS.index("reclaim")
    for number in range(samples):
        at_us = np.full(nodes, (number + 1) * trace.SAMPLE_SECONDS * 10**6, dtype=np.int64)
        asked = np.broadcast_to(wanted[:, number, None, None], wide)
        state = slew.update(state, asked, whole, at_us, rise_per_hour, trace.SAMPLE_SECONDS)
        lent[:, number] = state.lent[:, own, 0]
    return lent
