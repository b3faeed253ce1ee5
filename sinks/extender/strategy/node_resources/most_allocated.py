"""MostAllocated of kube-scheduler: the fuller the node, the better, so that pods are packed and nodes come free."""

from collections.abc import Mapping

import numpy as np

from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.strategy.node_resources import allocation


class MostAllocated(allocation.Fit):
    """Scores the requested share of each resource, with the pod, by weight.

    Attributes:
        resources: Weights by resource.
    """

    name = "most_allocated"

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = resources

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100; what is requested beyond the capacity counts as full."""
        found = allocation.table(pod, nodes, self.resources)
        scores = allocation.per_cent(np.minimum(found.requested, found.capacity), found.capacity)
        return np.floor(allocation.mean(found, scores, found.counts))
