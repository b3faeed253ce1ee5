"""The global model as one node sees it, and the cost that is assumed of a pod."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.model import keyed_sum
from schemas.sections.estimation import Estimate

Array = NDArray[np.float64]

EVIDENT_PODS = 0.5  # less evidence than half a pod is no evidence of what a pod costs

_SMALL_COST = 1e-3


class GlobalModel(NamedTuple):
    """The global model: mean second moment and mean cost of a pod, both in absolute units; None: not known."""

    moment: Array | None = None
    cost: Array | None = None


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


def mixed(moment: Array, sizes: Array, global_model: GlobalModel, weight: float) -> Array:
    """Return nodes' moments (nodes, features, features) mixed with the cluster's, which has this weight."""
    if global_model.moment is None:
        return moment
    mixture: Array = (1.0 - weight) * moment + weight * keyed_sum.congruent(global_model.moment, sizes)
    return mixture
