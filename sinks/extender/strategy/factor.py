"""The factors of the weighted strategy: six views of a node, each from 0 to 1, more is better, 0.5 says nothing.

What is unknown never refuses a node and never outweighs what is known: a price or a risk that nobody knows is 0.5 for
that node, and if nobody knows it of any node, the factor has no say in the order. ADR 22 says which formulas these
stand in the place of, and why.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Mask

NEUTRAL = 0.5
_DAY_HOURS = 24.0
_MOST = 1e15  # beyond all prices and rates, and its square still is a number


def fit(left: Array, total: Array) -> Array:
    """Return how closely the pod fills the node: 1 less the mean share that is left of each resource.

    Args:
        left: (resources, nodes), free beside the pod.
        total: (resources, nodes), allocatable; 0: the node has none of it, and none is left.

    Returns:
        (nodes,); NaN where anything is NaN.
    """
    shares = np.divide(left, total, out=np.zeros_like(left), where=~(total == 0))
    found: Array = 1 - np.clip(shares, 0, 1).mean(axis=0)
    return found


def offered(labels: Mapping[str, str], annotations: Mapping[str, str], names: Sequence[str]) -> str:
    """Return what a node says of itself under the first of these names, its labels first; empty: nothing.

    >>> offered({"disktype": "SSD"}, {}, ("spazio.disk-type", "disktype"))
    'ssd'
    """
    found = next((where[name] for name in names for where in (labels, annotations) if where.get(name)), "")
    return found.strip().lower()


def price(now: Array, median: Array) -> Array:
    """Return how cheap each node is beside the others: 0.5 at their median cost, 1 if it is free.

    The cost is the geometric mean of the price now and of its median over time: a node costs the pod the one at first
    and the other in the long run. It rises with either, and falls with neither.

    Args:
        now: (nodes,) price per hour; NaN: unknown, the median alone counts.
        median: (nodes,) its median; NaN: unknown, the price now alone counts.
    """
    first, other = np.where(np.isnan(now), median, now), np.where(np.isnan(median), now, median)
    cost = np.clip(np.sqrt(np.clip(first, 0, None)) * np.sqrt(np.clip(other, 0, None)), 0, _MOST)
    known = cost[~np.isnan(cost)]
    # If more than half of the nodes are free, the median would tell the others apart no more.
    typical = float(np.median(known) or known.mean()) if known.size else 0.0
    if typical == 0:
        return np.full(len(cost), NEUTRAL)
    return np.where(np.isnan(cost), NEUTRAL, typical / (typical + np.nan_to_num(cost)))


def stability(rate: Array, now: Array, median: Array, spot: Mask) -> Array:
    """Return the share of such nodes that a day leaves: exp(-24 r), with r the risk an hour; 1 unless it is spot.

    The risk is the rate of interruptions, greater in the measure in which the node is dearer now than at its median: a
    price above what is usual says that capacity is short.

    Args:
        rate: (nodes,) interruptions an hour; NaN: unknown.
        now: (nodes,) price per hour; NaN: unknown, taken as usual.
        median: (nodes,) its median; NaN or 0: unknown, taken as usual.
        spot: (nodes,) capacity that may be taken away.
    """
    strain = np.ones(len(rate))
    with np.errstate(over="ignore"):
        np.divide(now, median, out=strain, where=(median > 0) & (now >= 0))
    risk = np.clip(rate, 0, _MOST) * np.minimum(strain, _MOST)
    share = np.where(np.isnan(risk), NEUTRAL, np.exp(-_DAY_HOURS * np.nan_to_num(risk)))
    return np.where(spot, share, 1.0)


def priority(*, critical: bool, spot: Mask) -> Array:
    """Return how well the kind of capacity suits the pod.

    A critical pod wants durable capacity: 1, and 0 where it may be taken away. For others spot capacity is 1 and
    durable is neutral, so that it stays free for those who need it.
    """
    return np.where(spot, 0.0, 1.0) if critical else np.where(spot, 1.0, NEUTRAL)
