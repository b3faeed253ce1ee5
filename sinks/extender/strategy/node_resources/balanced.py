"""BalancedAllocation of kube-scheduler, in both its forms, for comparison with the default scheduler.

A node is balanced when the requested shares of its resources are alike. Through 1.35 the score is the balance with the
pod; since 1.36 it is how much the pod betters it. Requests are counted without stand-ins for those that are not stated,
and pods that request nothing are not scored by it at all.

Source: kube-scheduler 1.35 and 1.36, `noderesources/balanced_allocation.go`.
"""

import numpy as np

from sinks.extender.candidate import Array


def balance(requested: Array, capacity: Array) -> Array:
    """Return the score through 1.35.

    Args:
        requested: (resources, nodes), with the pod, in any unit.
        capacity: (resources, nodes), in the same unit; 0: the resource does not count there.

    Returns:
        (nodes,) whole numbers from 50 to 100 for two resources; NaN where anything is NaN.
    """
    counts = ~(capacity == 0)
    shares = np.minimum(np.divide(requested, capacity, out=np.zeros_like(requested), where=counts), 1)
    number = counts.sum(axis=0)
    average = shares.sum(axis=0) / np.maximum(number, 1)
    spread = np.sqrt(((shares - average) ** 2 * counts).sum(axis=0) / np.maximum(number, 1))
    # Of two values the deviation is half the difference; said so, it is free of rounding, which truncation would show.
    high, low = np.where(counts, shares, -np.inf).max(axis=0), np.where(counts, shares, np.inf).min(axis=0)
    spread = np.where(number == 2, np.subtract(high, low, where=number == 2, out=np.zeros_like(spread)) / 2, spread)
    score: Array = np.trunc((1 - spread) * 100)
    return score


def betterment(before: Array, requested: Array, capacity: Array) -> Array:
    """Return the score since 1.36: 75 where the pod changes nothing, 100 where it betters the balance most, 50 worst.

    Args:
        before: (resources, nodes), without the pod.
        requested: (resources, nodes), with the pod.
        capacity: (resources, nodes); 0: the resource does not count there.

    Returns:
        (nodes,) whole numbers; NaN where anything is NaN.
    """
    return 50 + np.floor((50 + balance(requested, capacity) - balance(before, capacity)) / 2)
