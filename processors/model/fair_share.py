"""What one node may contribute to a mean over the cluster, so that no single one moves it far.

Each node reports a weight (pods that it has evidence of) and an amount (what they take). The mean that is in force, of
the second before, bounds both: a node counts for at most `MOST` times the mean weight, and its amount by weight lies
within a range around the mean; what lies beyond counts as the end of the range (Huber's proposal: Huber, Robust
Estimation of a Location Parameter, 1964). Repeated each second, the mean settles where the bounded contributions
balance. It needs no sorting of nodes, so partitions still only add up sums. With n honest nodes that agree and one that
does not, a range from l to h of the mean keeps the settled mean M within

    n / (n + MOST (1 - l))  <=  M  <=  n / (n - MOST (h - 1))

While nothing is out of bounds, numbers stay what they were to the last bit.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MOST = 1.5  # times the mean weight
LEAST_VOTERS = 3  # of two nodes that disagree either may be wrong
_LEAST_WEIGHT = 1.0  # pod; less of it is never cut, or little evidence on many nodes would cut all there is


def bounded(
    weight: Array, amount: Array, mean: Array, fair: Array | float, *, low: float, high: float
) -> tuple[Array, Array]:
    """Bound the contributions of nodes.

    Args:
        weight: (nodes, ...) at least 0.
        amount: (nodes, ..., quantities) at least 0.
        mean: (nodes, ..., quantities), or what broadcasts to it: mean amount by weight; NaN: not known, no bound.
        fair: Mean weight of a node, or (nodes, ...); NaN: not known, no bound.
        low: Least amount by weight, as a share of the mean.
        high: Greatest amount by weight, in means.

    Returns:
        Factors (nodes, ...) by which weights are to be multiplied, 0..1; and the bounded amounts, multiplied by them.

    >>> bounded(np.array([2.0, 9.0]), np.array([[2.0], [90.0]]), np.ones((1, 1)), 2.0, low=0.5, high=1.5)
    (array([1.        , 0.33333333]), array([[2. ],
           [4.5]]))
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        most = np.maximum(MOST * np.asarray(fair), _LEAST_WEIGHT)
        factor = np.where(weight > most, most / weight, 1.0)
        least, greatest = (end * mean * weight[..., np.newaxis] for end in (low, high))
        within = np.where(amount > greatest, greatest, np.where(amount < least, least, amount))
    return factor, within * factor[..., np.newaxis]


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
