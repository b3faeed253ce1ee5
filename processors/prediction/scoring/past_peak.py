"""How high usage rose within earlier horizons: a faded mean of those peaks, and their scale.

A prediction is of a peak, so the peaks that came are the most direct evidence of the next one. Each judged prediction
is one observation. With its weight w faded with age, mean m and variance v,

    scale = sqrt((w v + w0 d^2) / (w + w0))        d, w0: deviation assumed, and the predictions that it weighs
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import pending

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_ASSUMED, _DEVIATION = 4.0, 0.01
_HALF_LIFE_HORIZONS = 3.0
_SHORTEST_SECONDS, _LONGEST_SECONDS = 6 * 3600.0, 4 * 86_400.0


class State(NamedTuple):
    """What came of each row's predictions.

    Attributes:
        weight: (rows, resources) faded number of judged predictions.
        mean: (rows, resources) faded mean of the peaks, share of the limit; of no meaning where the weight is 0.
        variance: (rows, resources) faded variance about it.
    """

    weight: Array
    mean: Array
    variance: Array


def init(rows: int, resources: int) -> State:
    """Return the state of rows never seen."""
    return State(*(np.zeros((rows, resources)) for _ in State._fields))


def update(state: State, waiting: pending.State, done: Mask, elapsed: Array, *, horizon_seconds: float) -> State:
    """Take in the predictions whose horizon has ended.

    Args:
        state: What the last call returned, or `init`.
        waiting: Predictions that waited, and the highest usage since.
        done: (rows, slots) True: the horizon has passed.
        elapsed: (rows,) seconds since the row's sample before.
        horizon_seconds: How far a prediction looks.
    """
    half_life = min(max(_HALF_LIFE_HORIZONS * horizon_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
    weight, mean, variance = state
    weight = weight * np.exp2(-elapsed / half_life)[:, None]
    for slot in np.flatnonzero(done.any(axis=0)):
        peak = waiting.highest[:, :, slot]
        is_known = done[:, slot, None] & ~np.isnan(peak)
        weight = weight + is_known
        share = np.divide(is_known, weight, out=np.zeros_like(weight), where=is_known)
        step = np.where(is_known, peak - mean, 0.0)
        mean, variance = mean + share * step, (1.0 - share) * (variance + share * step**2)
    return State(weight, mean, variance)


def base(state: State) -> Array:
    """Return the mean of the peaks (rows, resources); NaN: none has come."""
    return np.where(state.weight > 0, state.mean, np.nan)


def scale(state: State) -> Array:
    """Return their scale (rows, resources), above 0."""
    assumed = _ASSUMED * _DEVIATION**2
    root: Array = np.sqrt((state.weight * state.variance + assumed) / (state.weight + _ASSUMED))
    return root
