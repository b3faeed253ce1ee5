"""MostAllocated of kube-scheduler: prefers the fullest node, which packs pods and frees nodes."""

from collections.abc import Mapping

import numpy as np

from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.strategy.node_resources import allocation


class MostAllocated(allocation.Fit):
    """Scores the weighted requested share of each resource, with the pod on the node.

    Attributes:
        resources: Weights by resource.
    """

    name = "most_allocated"

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = resources

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100; an overcommitted resource counts as full."""
        resources = allocation.table(pod, nodes, self.resources)
        scores = allocation.per_cent(np.minimum(resources.requested, resources.capacity), resources.capacity)
        return np.floor(allocation.mean(resources, scores, resources.counts))
