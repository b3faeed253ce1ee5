"""LeastAllocated of kube-scheduler, its default: the emptier the node, the better, so that pods are spread."""

from collections.abc import Mapping

import numpy as np

from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.strategy.node_resources import allocation


class LeastAllocated(allocation.Fit):
    """Scores the share of each resource that is left beside the pod, by weight.

    Attributes:
        resources: Weights by resource.
    """

    name = "least_allocated"

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = resources

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100; a resource that more is requested of than there is counts 0."""
        found = allocation.table(pod, nodes, self.resources)
        scores = allocation.per_cent(np.maximum(found.capacity - found.requested, 0), found.capacity)
        return np.floor(allocation.mean(found, scores, found.counts))
