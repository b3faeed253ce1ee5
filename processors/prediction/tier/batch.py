"""Batch-tier resources, for reference: what production and Mid pods do not use right now, without any prediction.

Three policies of Koordinator (noderesource/plugins/batchresource), per resource. USAGE leaves out what pods use,
REQUEST what they ask for, GREATEST the greater of both for each pod. Whole milli-cores and bytes within, as in
`koordinator`; (rows, resources) in cores and bytes, cpu first.
"""

import enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import koordinator, pod_sum, priority

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

RECLAIM = np.array([0.60, 0.65])
_CPU = np.array([True, False])


class Policy(enum.IntEnum):
    """What of the pods above Batch is left to them."""

    USAGE = 0
    REQUEST = 1
    GREATEST = 2


class Held(NamedTuple):
    """What pods above Batch hold by each policy; (rows, resources) each, in the order of `Policy`."""

    used: Array
    requested: Array
    greatest: Array


def held(
    request: Array, usage: Array, classes: NDArray[np.int8], exclusive: Mask, row: NDArray[np.intp], rows: int
) -> Held:
    """Add up the pods above Batch that run or wait to run.

    Args:
        request: (pods, resources); below 0 counts as 0. NaN: usage was reported of a pod that is no longer listed; it
            counts what it used.
        usage: (pods, resources); NaN: not reported, the pod counts its request.
        classes: (pods,) as `priority.Priority`; give a pod that is no longer listed the class NONE.
        exclusive: (pods,) True: the pod owns its cores (quality of service LSE), and counts the request of cpu.
        row: (pods,) node of each; below 0: of none.
        rows: How many nodes there are.
    """
    high = (classes != priority.Priority.BATCH) & (classes != priority.Priority.FREE)
    asked, used = (np.maximum(koordinator.quantities(amount), 0) for amount in (request, usage))
    owned = exclusive[:, np.newaxis] & _CPU & ~np.isnan(request)
    taken = np.where(np.isnan(usage) | owned, asked, used)

    def total(quantity: koordinator.Quantities) -> Array:
        return koordinator.values(pod_sum.add(np.where(high[:, np.newaxis], quantity, 0), row, rows))

    return Held(total(taken), total(asked), total(np.maximum(asked, taken)))


def allocatable(
    capacity: Array,
    reserved: Array,
    system: Array,
    pods: Held,
    *,
    reclaim: Array = RECLAIM,
    policy: tuple[Policy, Policy] = (Policy.USAGE, Policy.USAGE),
    threshold: Array | None = None,
) -> Array:
    """Return what Batch pods may have.

    Args:
        capacity: (rows, resources); NaN: not known, there is nothing.
        reserved: (rows, resources) what the kubelet or an annotation reserves; NaN: nothing.
        system: (rows, resources) usage outside of pods; NaN: none. It counts only where it exceeds what is reserved.
        pods: What pods above Batch hold. It may exceed capacity: then there is nothing.
        reclaim: (resources,) share of capacity that may be in use at all, 0..1.
        policy: Of cpu and of memory.
        threshold: (resources,) share of capacity that Batch pods may have at most; None: no such limit.

    Returns:
        (rows, resources), whole milli-cores and bytes, 0 or more.
    """
    whole = koordinator.quantities(capacity)
    # Rounded, since 1 - 0.57 is not the float 0.43 that Koordinator finds as (100 - 57)/100.
    margin = koordinator.scaled(whole, np.round(1.0 - reclaim, 12))
    kept = koordinator.quantities(reserved)
    outside = np.maximum(koordinator.quantities(system), kept)
    by_policy = [
        whole - margin - (kept if choice is Policy.REQUEST else outside) - koordinator.quantities(pods[choice])
        for choice in policy
    ]
    left = np.maximum(np.where(_CPU, by_policy[0], by_policy[1]), 0)
    if threshold is not None:
        left = np.minimum(left, koordinator.scaled(whole, threshold))
    return koordinator.values(left)
