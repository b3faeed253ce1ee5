"""The six factors of the weighted strategy; each is from 0 to 1, higher is better, and 0.5 is neutral.

Unknown values never refuse a node and never outweigh known ones. A node with unknown price or risk gets 0.5 for it; if
the value is unknown for all nodes, the factor does not change their order. ADR 22 lists the formulas that these replace
and the reasons.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Mask

NEUTRAL = 0.5
_DAY_HOURS = 24.0
_MOST = 1e15  # larger than any price or rate; its square is still finite


def fit(left: Array, total: Array) -> Array:
    """Return how closely the pod fills the node: 1 less the mean free share of its resources.

    Args:
        left: (resources, nodes), free once the pod is there.
        total: (resources, nodes), allocatable; a resource with 0 counts as full.

    Returns:
        (nodes,); NaN where anything is NaN.
    """
    shares = np.divide(left, total, out=np.zeros_like(left), where=~(total == 0))
    fullness: Array = 1 - np.clip(shares, 0, 1).mean(axis=0)
    return fullness


def offered(labels: Mapping[str, str], annotations: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the value of the first of these names that a node has; labels win over annotations; empty: it has none.

    >>> offered({"disktype": "SSD"}, {}, ("spazio.disk-type", "disktype"))
    'ssd'
    """
    value = next((source[name] for name in names for source in (labels, annotations) if source.get(name)), "")
    return value.strip().lower()


def price(now: Array, median: Array) -> Array:
    """Return how cheap each node is compared with the others: 0.5 at their median cost, 1 for a free node.

    The cost is the geometric mean of the current price and of its median over time: the pod pays the first at once and
    the second in the long run. The cost rises with either price.

    Args:
        now: (nodes,) price per hour; NaN: unknown, only the median counts.
        median: (nodes,) its median; NaN: unknown, only the current price counts.
    """
    first, other = np.where(np.isnan(now), median, now), np.where(np.isnan(median), now, median)
    cost = np.clip(np.sqrt(np.clip(first, 0, None)) * np.sqrt(np.clip(other, 0, None)), 0, _MOST)
    finite = cost[~np.isnan(cost)]
    # If more than half of the nodes are free, the median is 0 and would not distinguish the others.
    typical = float(np.median(finite) or finite.mean()) if finite.size else 0.0
    if typical == 0:
        return np.full(len(cost), NEUTRAL)
    return np.where(np.isnan(cost), NEUTRAL, typical / (typical + np.nan_to_num(cost)))


def stability(rate: Array, now: Array, median: Array, spot: Mask) -> Array:
    """Return the share of such nodes that survives a day: exp(-24 r), with r the risk per hour; 1 unless it is spot.

    The risk is the rate of interruptions times the ratio of the current price to its median: a high price shows that
    capacity is short.

    Args:
        rate: (nodes,) interruptions per hour; NaN: unknown.
        now: (nodes,) price per hour; NaN: unknown, the ratio is 1.
        median: (nodes,) its median; NaN or 0: unknown, the ratio is 1.
        spot: (nodes,) capacity that the provider may reclaim.
    """
    strain = np.ones(len(rate))
    with np.errstate(over="ignore"):
        np.divide(now, median, out=strain, where=(median > 0) & (now >= 0))
    risk = np.clip(rate, 0, _MOST) * np.minimum(strain, _MOST)
    share = np.where(np.isnan(risk), NEUTRAL, np.exp(-_DAY_HOURS * np.nan_to_num(risk)))
    return np.where(spot, share, 1.0)


def priority(*, critical: bool, spot: Mask) -> Array:
    """Return (nodes,) how well the kind of capacity suits the pod.

    For a critical pod, durable capacity scores 1 and spot capacity 0. For others, spot capacity scores 1 and durable
    capacity is neutral, so that it stays free for critical pods.
    """
    return np.where(spot, 0.0, 1.0) if critical else np.where(spot, 1.0, NEUTRAL)
