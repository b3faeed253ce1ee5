"""LeastAllocated, kube-scheduler's default: prefers the emptiest node, which spreads pods."""

from collections.abc import Mapping

import numpy as np

from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.strategy.node_resources import allocation


class LeastAllocated(allocation.Fit):
    """Scores the weighted free share of each resource, with the pod on the node.

    Attributes:
        resources: Weights by resource.
    """

    name = "least_allocated"

    def __init__(self, resources: Mapping[str, float]) -> None:
        self.resources = resources

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100; an overcommitted resource scores 0."""
        resources = allocation.table(pod, nodes, self.resources)
        scores = allocation.per_cent(np.maximum(resources.capacity - resources.requested, 0), resources.capacity)
        return np.floor(allocation.mean(resources, scores, resources.counts))
