"""Ranks by the predicted peak: a pod fits where the predicted peak usage leaves room for its requests.

The peak is of usage, so a node may take more pods than their requests would allow. Pods that came after the prediction
are not part of it and count with their requests.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.strategy import wording

RESOURCES = ("cpu", "memory")


def reason(resource: str) -> str:
    """Return the reason to refuse a node whose peak leaves too little of a resource."""
    return f"the predicted peak leaves less {resource} than the pod requests"


class Peak:
    """Ranks by what peak and pod leave free; a node without a prediction passes and scores 0.

    A resource that is predicted on no node, as where only CPU is measured, is left out of the score.
    """

    name = "peak"

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by resource, the nodes where peak, newer pods and this pod exceed the allocatable amount."""
        masks = {reason(resource): left(pod, nodes, resource) < 0 for resource in RESOURCES}
        return {why: mask for why, mask in masks.items() if mask.any()}

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) scores from 0 to 100: the allocatable share left of the scarcer of CPU and memory."""
        shares = np.zeros((len(RESOURCES), len(nodes.names)))
        for row, resource in enumerate(RESOURCES):
            allocatable = nodes.allocatable[resource]
            np.divide(left(pod, nodes, resource), allocatable, out=shares[row], where=allocatable > 0)
        predicted = shares[~np.isnan(shares).all(axis=1)]
        if not predicted.size:
            return np.zeros(len(nodes.names))
        scarcer: Array = np.clip(np.nan_to_num(predicted.min(axis=0)), 0, 1)
        return 100 * scarcer

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:
        """Return, for each resource that does not suffice, the peak, the requests that count too, and the limit."""
        sentences = []
        for resource in RESOURCES:
            if left(pod, nodes, resource)[index] < 0:
                terms = nodes.peak[resource][index], nodes.unpredicted[resource][index], pod.requests.get(resource, 0.0)
                peak, newer, asked = (wording.amount(resource, float(term)) for term in terms)
                allocatable = wording.amount(resource, float(nodes.allocatable[resource][index]))
                sentences.append(
                    f"{resource}: a predicted peak of {peak}, {newer} requested by newer pods "
                    f"and {asked} by the pod exceed {allocatable}"
                )
        return sentences


def left(pod: Pod, nodes: Candidates, resource: str) -> Array:
    """Return (nodes,) what peak, newer pods and this pod leave free; NaN where a term is unknown."""
    taken = nodes.peak[resource] + nodes.unpredicted[resource] + pod.requests.get(resource, 0.0)
    return np.round(nodes.allocatable[resource] - taken, 9)
