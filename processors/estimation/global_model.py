"""The global model as one node sees it, and the cost that is assumed of a pod."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.model import fair_share, keyed_sum
from schemas.sections.estimation import Estimate

Array = NDArray[np.float64]

EVIDENT_PODS = 0.5  # less evidence than half a pod is no evidence of what a pod costs

_SMALL_COST = 1e-3
_LOW, _HIGH = 0.5, 1.5  # of the mean cost of a pod, within which a node's counts


class GlobalModel(NamedTuple):
    """The global model: mean second moment and mean cost of a pod, both in absolute units; None: not known.

    `fair` is the number of pods that a node has evidence of, in the mean over `nodes`; NaN: too few nodes have any.
    """

    moment: Array | None = None
    cost: Array | None = None
    fair: float = math.nan
    nodes: int = 0


def assumed(sizes: Array, global_model: GlobalModel, resources: list[int], estimate: Estimate) -> Array:
    """Return the cost that is assumed of any pod, (nodes, features): the cluster's mean, else the reference pod's.

    Args:
        sizes: (nodes, features) what a ratio of 1 is.
        global_model: Global model in force.
        resources: Columns of cpu and memory.
        estimate: Settings, for the reference pod.
    """
    cpu, memory = resources
    prior = np.full(sizes.shape, _SMALL_COST)
    prior[:, cpu] = estimate.pod_cores / sizes[:, cpu]
    prior[:, memory] = estimate.pod_memory_bytes / sizes[:, memory]
    wanted = prior if global_model.cost is None else np.where(global_model.cost > 0, global_model.cost / sizes, prior)
    bounded: Array = np.clip(wanted, prior / 100, 1.0)
    return bounded


def contribution(pods: Array, taken: Array, global_model: GlobalModel) -> tuple[Array, Array]:
    """Bound what nodes contribute to the mean cost of a pod; see `fair_share`.

    Args:
        pods: (nodes,) pods that each has evidence of.
        taken: (nodes, features) what they take, in absolute units.
        global_model: Global model in force.

    Returns:
        Factors (nodes,) of `pods`, and what counts as taken.
    """
    mean = np.full((1, taken.shape[1]), np.nan)
    if global_model.cost is not None and not math.isnan(global_model.fair):
        mean = np.where(global_model.cost > 0, global_model.cost, np.nan)[np.newaxis]
    return fair_share.bounded(pods, taken, mean, global_model.fair, low=_LOW, high=_HIGH)


def mixed(moment: Array, sizes: Array, global_model: GlobalModel, weight: float) -> Array:
    """Return nodes' moments (nodes, features, features) mixed with the cluster's, which has this weight."""
    if global_model.moment is None:
        return moment
    mixture: Array = (1.0 - weight) * moment + weight * keyed_sum.congruent(global_model.moment, sizes)
    return mixture
