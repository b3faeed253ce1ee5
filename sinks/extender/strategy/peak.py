"""Ranks by the predicted peak: a pod fits where even the peak that is to come leaves room for what it requests.

The peak is of usage, so a node may take more than its requests would allow; what the peak cannot know, the pods that
came after it was predicted, counts with what they request.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.strategy import wording

RESOURCES = ("cpu", "memory")


def reason(resource: str) -> str:
    """Return the reason for which a node is refused whose peak leaves too little of a resource."""
    return f"the predicted peak leaves less {resource} than the pod requests"


class Peak:
    """Ranks by what is left beside the peak and the pod; nodes without a prediction pass, and score 0."""

    name = "peak"

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by resource, the nodes where peak, newer pods and this pod come to more than is allocatable."""
        found = {reason(resource): left(pod, nodes, resource) < 0 for resource in RESOURCES}
        return {why: mask for why, mask in found.items() if mask.any()}

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) scores from 0 to 100: the allocatable share left of the scarcer of CPU and memory."""
        shares = np.zeros((len(RESOURCES), len(nodes.names)))
        for row, resource in enumerate(RESOURCES):
            there = nodes.allocatable[resource]
            np.divide(left(pod, nodes, resource), there, out=shares[row], where=there > 0)
        scarcer: Array = np.clip(np.nan_to_num(shares.min(axis=0)), 0, 1)
        return 100 * scarcer

    def needs(self, pod: Pod, nodes: Candidates, place: int) -> Sequence[str]:
        """Say what the peak is, what else counts, and how much is too much."""
        said = []
        for resource in RESOURCES:
            if left(pod, nodes, resource)[place] < 0:
                terms = nodes.peak[resource][place], nodes.unpredicted[resource][place], pod.requests.get(resource, 0.0)
                peak, newer, asked = (wording.amount(resource, float(term)) for term in terms)
                there = wording.amount(resource, float(nodes.allocatable[resource][place]))
                said.append(
                    f"{resource}: a predicted peak of {peak}, {newer} requested by newer pods "
                    f"and {asked} by the pod exceed {there}"
                )
        return said


def left(pod: Pod, nodes: Candidates, resource: str) -> Array:
    """Return (nodes,) what peak, newer pods and this pod leave; NaN where anything of it is unknown."""
    taken = nodes.peak[resource] + nodes.unpredicted[resource] + pod.requests.get(resource, 0.0)
    return np.round(nodes.allocatable[resource] - taken, 9)
