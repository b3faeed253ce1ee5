"""What one node may contribute to a mean over the cluster, so that no single one moves it far.

Each node reports a weight (pods that it has evidence of) and an amount (what they take). The mean that is in force, of
the second before, bounds both: a node counts for at most `MOST` times the mean weight, and the one node that adds most
beyond `HIGH` times the mean, and the one that lacks most below `LOW` times the mean, count as these ends. Partitions
only add up sums, and send beside them how far their furthest nodes are beyond the ends.

Repeated each second, the mean settles: what nodes contribute grows with the mean in force, and by less than it does,
since LOW + HIGH is no more than the weight of two nodes, and there are three at least. With n honest nodes that agree,
and weigh the same, one that does not weighs at most w = MOST n / (n + 1 - MOST) times as much as one of them, and the
settled mean M is within

    n / (n + w (1 - LOW))  <=  M  <=  n / (n - w (HIGH - 1))

of what they say: 0.8 to 1.33 times it with n = 2, and 0.97 to 1.04 times with n = 11. Where honest nodes differ it may
add as much as the furthest of them.

Where all nodes count as the end of the range (Huber's proposal: Huber, Robust Estimation of a Location Parameter, 1964)
honest nodes of two kinds settle at the mean of either kind, and not at that of both. So all others lie within a range
that is far wider (`WIDE`), which bounds what several dishonest nodes do to many honest ones.

While nothing is out of bounds, numbers stay what they were to the last bit.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MOST = 1.5  # times the mean weight
LEAST_VOTERS = 3  # of two nodes that disagree either may be wrong
LOW, HIGH = 0.75, 1.25  # of the mean, as which the furthest node counts
WIDE = 8.0  # times the mean, and a fraction of it: as nodes of one cluster may differ
_LEAST_WEIGHT = 1.0  # pod; less of it is never cut, or little evidence on many nodes would cut all there is


class Share(NamedTuple):
    """What nodes contribute to a mean.

    Attributes:
        factor: (nodes, ...) by which weights are to be multiplied, 0..1.
        amount: (nodes, ..., quantities) amounts, multiplied by it.
        above, below: (nodes, ..., quantities) how much of that, or how much less, is beyond the range.
    """

    factor: Array
    amount: Array
    above: Array
    below: Array


def bounded(weight: Array, amount: Array, mean: Array, fair: Array | float) -> Share:
    """Bound the contributions of nodes, but for the range that only the furthest of them are brought into.

    Args:
        weight: (nodes, ...) at least 0.
        amount: (nodes, ..., quantities) at least 0.
        mean: (nodes, ..., quantities), or what broadcasts to it: mean amount by weight; NaN: not known, no bound.
        fair: Mean weight of a node, or (nodes, ...); NaN: not known, no bound.

    >>> share = bounded(np.array([2.0, 9.0]), np.array([[2.0], [90.0]]), np.ones((1, 1)), 2.0)
    >>> share.factor.round(2), share.amount.ravel(), share.above.ravel()
    (array([1.  , 0.33]), array([ 2., 24.]), array([ 0.  , 20.25]))
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        most = np.maximum(MOST * np.asarray(fair), _LEAST_WEIGHT)
        factor = np.where(weight > most, most / weight, 1.0)
        scale = mean * weight[..., np.newaxis]
        within = np.where(amount > WIDE * scale, WIDE * scale, np.where(amount < scale / WIDE, scale / WIDE, amount))
        above, below = (np.where(far > 0, far, 0.0) for far in (within - HIGH * scale, LOW * scale - within))
    return Share(factor, *(part * factor[..., np.newaxis] for part in (within, above, below)))


def furthest(beyond: Array, group: npt.NDArray[np.int64], groups: int) -> Array:
    """Return how far the furthest node of each group (groups, ...) is beyond the range; `group` (nodes,) says which."""
    most = np.zeros((groups, *beyond.shape[1:]))
    np.maximum.at(most, group, beyond)
    return most


def sizes(moments: Array, units: Array, most: Array) -> Array:
    """Return units (nodes, features) in which no node's moment has more energy than allowed.

    Args:
        moments: (nodes, features, features) of ratios.
        units: (nodes, features) what a ratio of 1 is.
        most: (features,) greatest squared amount; infinite: no bound.
    """
    energy = np.diagonal(moments, axis1=1, axis2=2) * units**2
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scale = np.where(energy > most, np.sqrt(most / energy), 1.0)
    scaled: Array = units * scale
    return scaled
