"""How many more pods of each workload class fit on a node, with a lower bound.

Class w fits `A = min over resources of (1 - h - y)/W_w` more times, y the believed usage and W_w what one pod takes;
the node's pod limit bounds it. Each number says what fits if nothing else comes: classes share the same room. Classes
that the node has never run have the cluster's cost, as unsure as any prior.

While usage is fresh, y is what was measured. In churn it is `rest + sum of W_k n_k` from what was learned, which pods
that are just starting do not disturb. With V the variance of y and v_w that of W_w, the delta method gives
`Var A = (V + v_w A^2)/W_w^2` for a fresh y; in churn y holds n_w W_w too, so A^2 becomes A^2 + 2 n_w A, and V holds
n_k^2 v_k of every class.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import classes
from processors.availability import ONE_SIDED_90, PODS
from processors.classes import EMPTY, Cost
from schemas.section import Estimate

Array = NDArray[np.float64]


class Nodes(NamedTuple):
    """What is known of some nodes beside their classes; resources are cpu and memory.

    Attributes:
        usage: (nodes, resources) newest smoothed usage, ratios.
        believed: (nodes, resources) usage that availability is made of.
        noise: (nodes, resources) variance of it.
        sizes: (nodes, resources) cores and bytes that a ratio of 1 stands for.
        reference: (nodes, resources) cores and bytes that a pod takes of which nothing is known.
        waiting: (nodes,) cores that are wanted beyond those used.
        cores: (nodes,) CPUs.
        pods: (nodes,) running pods.
        churn: (nodes,) containers come or go.
        held: (nodes,) the newest block taught nothing.
        endless: (nodes,) churn has lasted for so long that fresh usage counts again.
    """

    usage: Array
    believed: Array
    noise: Array
    sizes: Array
    reference: Array
    waiting: Array
    cores: Array
    pods: Array
    churn: NDArray[np.bool_]
    held: NDArray[np.bool_]
    endless: NDArray[np.bool_]


class Cluster(NamedTuple):
    """What the cluster knows of classes: labels (classes,), running pods (classes,), cost (classes, resources)."""

    label: NDArray[np.int64]
    pods: Array
    cost: Array


class Room(NamedTuple):
    """Room per node and class: a node's slots first, then the cluster's classes.

    Attributes:
        label: (nodes, classes) EMPTY: no class in this column.
        pods: (nodes, classes) running pods of the class on the node.
        cost: (nodes, classes, resources) share of the node that one pod takes.
        available: (nodes, classes) more pods that fit.
        lower: (nodes, classes) one-sided 90 % lower bound.
        binding: (nodes, classes) index of the resource that runs out first; `PODS` for the pod limit.
        free: (nodes, resources) share of the node that pods may still take.
    """

    label: NDArray[np.int64]
    pods: Array
    cost: Array
    available: Array
    lower: Array
    binding: NDArray[np.int64]
    free: Array


def update(state: classes.State, cost: Cost, cluster: Cluster, nodes: Nodes, *, params: Estimate) -> Room:
    """Compute the room of each class.

    Args:
        state: What the nodes run.
        cost: What it costs, in cores and bytes.
        cluster: Classes that are known elsewhere.
        nodes: What else is known of the nodes.
        params: Settings.
    """
    scale = nodes.sizes[:, None, :]
    value, variance, noise = cost.value / scale, cost.variance / scale**2, cost.noise / scale**2
    occupied = state.label >= 0
    known = state.measured & ~np.isnan(state.rest)
    replaced = known & nodes.churn[:, None]
    believed = np.where(replaced, state.rest + classes.taken(state, value), nodes.believed)
    within = np.where(occupied & np.asarray(replaced.any(axis=1))[:, None], state.pods, 0.0)
    apart = np.where(replaced[:, None, :], variance * within[..., None] ** 2, noise)
    spread = state.scatter + classes.over_slots(np.where(occupied[..., None], apart, 0.0))

    elsewhere = np.maximum(cluster.cost, nodes.reference[:, None, :] / 100) / scale
    here = np.any(state.label[:, :, None] == cluster.label, axis=1)
    none = np.zeros(here.shape)
    every = np.concatenate((value, elsewhere), axis=1)
    free = np.maximum(1.0 - np.array([params.headroom_cpu, params.headroom_memory]) - believed, 0.0)
    available, lower, binding = _fit(
        free,
        np.where(known, spread, nodes.noise),
        every,
        np.concatenate((variance, (params.prior_deviation * elsewhere) ** 2), axis=1),
        np.concatenate((within, none), axis=1),
        np.maximum(params.max_pods - nodes.pods, 0.0),
    )
    return Room(
        label=np.concatenate((state.label, np.where(here, EMPTY, cluster.label)), axis=1),
        pods=np.concatenate((state.pods, none), axis=1),
        cost=every,
        available=available,
        lower=lower,
        binding=binding,
        free=free,
    )


def _fit(
    free: Array, spread: Array, cost: Array, variance: Array, within: Array, limit: Array
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return available, lower and binding; `within` (nodes, classes) are pods whose learned cost is in `free`."""
    room = free[:, None, :] / cost
    scarce = np.where(np.isnan(room), np.inf, room)
    resource = np.argmin(scarce, axis=2)
    chosen = _pick(scarce, resource)
    most = np.broadcast_to(limit[:, None], chosen.shape)
    bounded = np.where(np.isfinite(chosen), chosen, most)
    at_spread = np.take_along_axis(spread, resource, axis=1)
    reach = bounded * (bounded + 2.0 * within)
    deviation = np.sqrt(at_spread + _pick(variance, resource) * reach) / _pick(cost, resource)
    # The limit itself is certain; only the room below it is not.
    available = np.minimum(bounded, most)
    lower = np.clip(bounded - ONE_SIDED_90 * deviation, 0.0, available)
    return available, lower, np.where(most < chosen, PODS, resource)


def _pick(values: Array, resource: NDArray[np.int64]) -> Array:
    picked: Array = np.take_along_axis(values, resource[..., None], axis=2)[..., 0]
    return picked
