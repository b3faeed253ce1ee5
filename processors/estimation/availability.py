"""How many more pods fit: room over cost of the scarcest resource, with an interval.

Two forms (CARICO dissertation, eq 3.12 and 3.13). Signal form, from fresh usage y: `(1 - h - y)/c`. Capacity form,
from what was learned: `(1 - h - baseline)/c - n`, which pods that are just starting do not disturb. While usage is
fresh the smaller of both counts, since at saturation the second may promise what the first sees is gone; during
churn only the second, once most of the cost is evidence. The node's pod limit bounds both.

The interval is the delta method on A = (1 - y)/c with y = baseline + c n: gradient (-1/c, -n/c - A/c) in
(baseline, c), so `Var A = v (1/W)/c^2 + Var(c) ((n + A)/c)^2`, W the seconds of evidence behind the baseline.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.sections.estimation import Estimate

Array = NDArray[np.float64]

ONE_SIDED_90 = 1.2815515655446004
PODS, DISK = -1, -2  # what runs out, where it is no resource
_FULL = 1.0 - 1e-6


class Room(NamedTuple):
    """Availability per node.

    Attributes:
        available: (nodes,) more pods that fit.
        lower: (nodes,) one-sided 90 % lower bound.
        upper: (nodes,) one-sided 90 % upper bound.
        binding: (nodes,) index of the resource that runs out first; `PODS` for the pod limit, `DISK` for the disks.
        cost: (nodes,) share of the scarcest resource that one pod takes.
        capacity: (nodes,) share of that resource that pods may take in all.
        resource: (nodes,) index of the scarcest resource, whatever binds.
    """

    available: Array
    lower: Array
    upper: Array
    binding: NDArray[np.int64]
    cost: Array
    capacity: Array
    resource: NDArray[np.int64]


class Demand(NamedTuple):
    """What is used of each resource, and what a pod takes of it.

    Attributes:
        usage: (nodes, resources) smoothed usage; NaN: not known, the resource does not bind.
        baseline: (nodes, resources) usage without pods; NaN: not known.
        cost: (nodes, resources) above 0.
        variance: (nodes, resources) of the cost.
        spread: (nodes, resources) variance of the baseline.
    """

    usage: Array
    baseline: Array
    cost: Array
    variance: Array
    spread: Array


def update(
    demand: Demand,
    pods: Array,
    churn: NDArray[np.bool_],
    *,
    headroom: Array,
    most: Array | int,
    whole: bool = False,
) -> Room:
    """Compute availability.

    Args:
        demand: Usage, baseline and cost.
        pods: (nodes,) running pods.
        churn: (nodes,) True: only what was learned counts now, since usage is not fresh.
        headroom: (resources,) share never given away.
        most: (nodes,) pods that a node may run.
        whole: Round the lower bound down to whole pods.
    """
    usage, baseline, cost = demand.usage, demand.baseline, demand.cost
    every = np.arange(len(pods))
    capacity = np.maximum(1.0 - headroom - np.where(np.isnan(baseline), usage, baseline), 0.0)
    fresh = np.maximum(1.0 - headroom - usage, 0.0) / cost
    learned = np.maximum(capacity / cost - pods[:, None], 0.0)
    room = np.where(churn[:, None], learned, np.minimum(fresh, learned))
    scarce = np.where(np.isnan(room), np.inf, room)
    resource = np.argmin(scarce, axis=1)
    chosen = scarce[every, resource]
    is_finite = np.isfinite(chosen)
    limit = np.maximum(most - pods, 0.0)
    available = np.minimum(chosen, limit)
    at_cost, at_variance = cost[every, resource], demand.variance[every, resource]
    reach = np.where(is_finite, chosen, 0.0) + pods
    deviation = np.sqrt(demand.spread[every, resource] + at_variance * reach**2) / at_cost
    # The limit itself is certain; only the room below it is not.
    believed = np.where(is_finite, chosen, limit)
    lower = np.clip(believed - ONE_SIDED_90 * deviation, 0.0, available)
    return Room(
        available=available,
        lower=np.floor(lower + 1e-9) if whole else lower,
        upper=np.maximum(np.minimum(believed + ONE_SIDED_90 * deviation, limit), available),
        binding=np.where(limit < chosen, PODS, resource),
        cost=at_cost,
        capacity=np.nan_to_num(capacity[every, resource]),
        resource=resource,
    )


def saturated(usage: Array) -> NDArray[np.bool_]:
    """Return which nodes (nodes,) have a full resource; its usage is no evidence of cost."""
    return np.asarray(np.any(usage >= _FULL, axis=1))


def free(used: Array, settings: Estimate) -> Array:
    """Return what pods may still take (nodes, resources), beside the headroom, given the share that they take."""
    left: Array = np.maximum(1.0 - np.array([settings.headroom_cpu, settings.headroom_memory]) - used, 0.0)
    return left
