"""What prod pods requested and will not need, and what of it the Mid tier gets, by formula."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import group, koordinator, mid
from processors.rows import known
from schemas.sections.prediction import Predict

Array = NDArray[np.float64]


class Node(NamedTuple):
    """What reclaimable is made of; (nodes, resources) each.

    Attributes:
        capacity: What the machine has.
        allocatable: What of it Kubernetes gives to pods.
        usage: Mean of the last five minutes; NaN: not known.
        system: The same of what runs in no pod.
        requested: Requests of the prod pods.
        unpredicted: Requests of those prod pods that are too young to be predicted.
        own: Sum of the percentiles of the prod pods that are old enough.
    """

    capacity: Array
    allocatable: Array
    usage: Array
    system: Array
    requested: Array
    unpredicted: Array
    own: Array


def reclaimable(node: Node, chosen: Array, shipped: koordinator.Result, settings: Predict) -> Array:
    """Return reclaimable (nodes, resources).

    Nothing is reclaimed that prod pods, pods without a class and the system will need. Usage by lower tiers does not
    count: what was lent and is used would otherwise be taken back (ADR 35).

    Args:
        node: Requests and sizes.
        chosen: (nodes, groups, resources) peaks of the model that settings choose.
        shipped: What Koordinator's own predictors say; it counts where its model is chosen.
        settings: The model, and the share of requests that counts.
    """
    predicted = node.requested - node.unpredicted
    if settings.model == "koordinator":
        kept_back = (1.0 - settings.reclaim_ratio) * predicted
        promised: Array = np.maximum(known.or_zero(shipped.reclaimable) - kept_back, 0.0)
        return promised
    peak = prod_peak(node, chosen)
    unbounded = np.full(2, np.inf)
    ratio = settings.reclaim_ratio
    spare = mid.proposed(predicted, peak, np.maximum(predicted, 1.0), threshold=unbounded, reclaim=ratio)
    unused = known.or_zero(np.maximum(node.allocatable - peak - system_peak(node, chosen), 0.0))
    least: Array = np.minimum(spare, unused)
    return least


def prod_peak(node: Node, chosen: Array) -> Array:
    """Return the peak (nodes, resources) of prod pods and of pods without a class; arguments as of `reclaimable`.

    A group on this node has not seen a pod that has just come with its workload's past, so the pods' own peaks count
    where they are higher.
    """
    return np.asarray(np.maximum(chosen[:, group.PROD] + known.or_zero(chosen[:, group.NONE]), node.own))


def system_peak(node: Node, chosen: Array) -> Array:
    """Return the peak (nodes, resources) of what runs in no pod; its mean usage where the model predicts none."""
    own = chosen[:, group.SYSTEM]
    return np.asarray(np.where(np.isnan(own), node.system, own))


def formulas(
    node: Node,
    reclaimable: Array,
    system: Array,
    shipped: koordinator.Result,
    lists_pods: NDArray[np.bool_],
    settings: Predict,
) -> Array:
    """Return Mid-tier allocatable (nodes, formulas, resources), in the order of `FORMULAS`.

    Args:
        node: Requests, usage and sizes.
        reclaimable: (nodes, resources) as the function of this name returns it.
        system: (nodes, resources) as of `system_peak`; what it uses is not free. NaN: nothing is free.
        shipped: What Koordinator's own predictors say, for its own formula.
        lists_pods: (nodes,) True: the node's pods are known; elsewhere nothing is taken for free.
        settings: Thresholds and ratios.
    """
    threshold = np.array([settings.threshold_cpu, settings.threshold_memory])
    lent = np.minimum(reclaimable, node.allocatable * threshold)
    free = known.or_zero(np.maximum(node.allocatable - node.requested - system, 0.0))
    free[~lists_pods] = 0.0
    own = mid.Node(
        capacity=node.capacity,
        allocatable=node.allocatable,
        reserved=np.full_like(node.capacity, np.nan),
        system=node.system,
        usage=node.usage,
        reclaimable=shipped.reclaimable,
        requested=node.requested,
    )
    ships = mid.shipped(own, threshold=threshold, unallocated=settings.unallocated_ratio)
    return np.stack([lent, lent + free, ships], axis=1)
