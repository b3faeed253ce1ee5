"""The factors of the weighted score word for word as they were written down first, for comparison.

    total = α fit + β disk + γ network + δ price - ε stability + ζ priority

Disk and network are 1 where the pod's wish is met. `sinks.extender.strategy.factor` has what the strategy uses, and
ADR 22 says where these contradict what they are meant for.
"""

from sinks.extender.candidate import Array


def fit(left: Array, total: Array) -> Array:
    """Return (nodes,) the sum of the shares left of CPU and memory, 0 to 2: the emptier the node, the higher.

    Args:
        left: (2, nodes), free CPU and memory less what the pod requests.
        total: (2, nodes), what the node has of them.
    """
    shares: Array = (left / total).sum(axis=0)
    return shares


def price(now: Array, median: Array) -> Array:
    """Return (nodes,) 1 less the median by the price: 0 at the median, below 0 where it is cheaper than usual."""
    return 1 - median / now


def stability(rate: Array, now: Array, median: Array) -> Array:
    """Return (nodes,) interruptions an hour, times the price by its median; it is subtracted."""
    return rate * (now / median)


def priority(value: int, high: int) -> float:
    """Return 1 for a pod of high priority, whatever the node."""
    return float(value >= high)
