"""Experts: how much each base counts on a row, and how rows are corrected.

An expert is a base with its table and corrections; it states a peak of its own. The peak in force is the mean of the
experts' peaks. On each row an expert counts the less, the greater the pinball loss of its peaks is there, the proper
score of a quantile:

    weight = exp(-3 (loss / least loss - 1))

What the partition has seen of an expert counts beside it, as much as those predictions of the row in which 1.5
violations are expected: 30 at a probability of 5 %, 150 at 1 %. With fewer, the expert that was violated last counts
least, whichever is better. So a new row profits from the others, and a row that is unlike them finds its own. A mean of
forecasts is steadier than the best of them (Bates and Granger, 1969). It is violated a little less often than each of
them; to correct that as well cost savings at long horizons, since one loop of feedback then follows another.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import base

Array = NDArray[np.float64]
Floats = NDArray[np.float32]

COUNT = base.COUNT
RUNGS = np.linspace(-3.0, 3.0, 13)  # log-odds that a row may be off its partition

_RATE = 0.25  # log-odds that a row moves while all predictions of a horizon are violated
_HIGHEST_PACE = 5.0
_BORROWED = 1.5  # violations that are expected in as many predictions of a row as the partition's mean loss weighs
_SHARPNESS = 3.0
_NO_LOSS = 1e-9


class InForce(NamedTuple):
    """What all rows predict with.

    Attributes:
        probability: (resources,) wanted share of violations.
        ladder: (experts, resources, rungs) multiple of the scale at each of `RUNGS`; NaN: nothing can be vouched for.
        loss: (experts, resources) mean pinball loss of a prediction, share of the limit; NaN: none was judged.
    """

    probability: Array
    ladder: Array
    loss: Array


def nothing(resources: int, probability: float) -> InForce:
    """Return what is in force before anything was learned."""
    unknown = np.full((COUNT, resources), np.nan)
    ladder = np.repeat(unknown[..., None], len(RUNGS), axis=2)
    return InForce(np.full(resources, probability), ladder, unknown)


def pace(horizon_seconds: float) -> float:
    """Return how much faster a partition is corrected than at a horizon of an hour; a long one has few lessons."""
    return float(np.clip(np.sqrt(horizon_seconds / 3600.0), 1.0, _HIGHEST_PACE))


def correct(offset: Floats, too_few: Array, *, horizon_seconds: float, interval_seconds: float) -> Floats:
    """Return the corrections of rows after some of their predictions were judged.

    Args:
        offset: (rows, experts, resources) log-odds.
        too_few: (rows, experts, resources) violations expected of the predictions that were judged, less those seen.
        horizon_seconds: How far a prediction looks.
        interval_seconds: Time between two predictions.
    """
    a_horizon = max(horizon_seconds / interval_seconds, 1.0)
    moved = offset + _RATE / a_horizon * too_few
    return np.clip(moved, RUNGS[0], RUNGS[-1]).astype(np.float32)


def multiples(offset: Floats, in_force: InForce) -> Array:
    """Return how many scales above its base each expert's peak is (rows, experts, resources); NaN: not learned."""
    rung = (offset.astype(np.float64) - RUNGS[0]) / (RUNGS[1] - RUNGS[0])
    low = np.minimum(rung.astype(np.intp), len(RUNGS) - 2)
    ladder = np.broadcast_to(in_force.ladder, (*low.shape, len(RUNGS)))
    lower, upper = (np.take_along_axis(ladder, (low + more)[..., None], axis=3)[..., 0] for more in (0, 1))
    multiple: Array = lower + (rung - low) * (upper - lower)
    return multiple


def weights(loss: Floats, judged: Floats, in_force: InForce, is_ready: NDArray[np.bool_]) -> Array:
    """Return how much each expert counts (rows, experts, resources); their sum is 1, or 0 where none is ready.

    One that was never judged counts only where none was.

    Args:
        loss: (rows, experts, resources) pinball loss of the row's predictions, faded, shares of the limit.
        judged: (rows, experts, resources) how many they were, faded.
        in_force: What was seen of the partition.
        is_ready: (rows, experts, resources) True: the expert has a peak.
    """
    borrowed = np.float32(_BORROWED / in_force.probability)
    mean = (loss + borrowed * in_force.loss) / (judged + borrowed)
    is_proven = is_ready & ~np.isnan(mean)
    counted = np.where(is_proven.any(axis=1, keepdims=True), is_proven, is_ready)
    mean = np.where(is_proven, np.maximum(mean, _NO_LOSS), np.inf)
    least = mean.min(axis=1, keepdims=True)
    excess = np.divide(mean, least, out=np.ones_like(mean), where=is_proven) - 1.0
    weight = np.where(counted, np.exp(-_SHARPNESS * excess), 0.0)
    total = weight.sum(axis=1, keepdims=True)
    shares: Array = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
    return shares
