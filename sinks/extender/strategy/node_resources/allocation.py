"""The integer arithmetic of kube-scheduler's NodeResourcesFit, for the strategies that score as it does.

CPU is counted in millicores and everything else in units, both rounded up, and divisions truncate. Floating point
would break ties that kube-scheduler has. Scores count a container without a CPU or memory request as 0.1 cores or
200 MiB; the filter counts it as 0. Extended resources that the pod does not request, and resources that a node lacks,
count neither in the sum nor in the weights.

It differs in one thing: of pods that are on a node already only the sums of their containers are known. Such a pod
counts the 0.1 cores or 200 MiB once, if no container of it has the request, and not for each container without.

Source: kube-scheduler 1.36, `framework/plugins/noderesources`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.strategy import wording

Whole = NDArray[np.int64]

TOO_MANY = "the node has as many pods as it may have"
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_LARGEST = 9e16  # a hundred times as much still fits into 64 bits
_NOISE = 1e-6  # largest error of sums of floating-point cores, in millicores


class Table(NamedTuple):
    """Amounts of each resource, with the pod on the node.

    Attributes:
        requested: (resources, nodes), with the pod.
        capacity: (resources, nodes).
        counts: (resources, nodes), whether the resource counts in the node's score.
        weights: (resources, 1).
        complete: (nodes,), whether all amounts are known.
    """

    requested: Whole
    capacity: Whole
    counts: Mask
    weights: Array
    complete: Mask


def whole(resource: str, amounts: Array | float) -> Array:
    """Return amounts in millicores or in units, rounded up; NaN stays."""
    return np.ceil(np.asarray(amounts, dtype=np.float64) * (1000 if resource == "cpu" else 1) - _NOISE)


def table(pod: Pod, nodes: Candidates, weights: Mapping[str, float]) -> Table:
    """Return, for each resource with a weight, its capacity and the requests with the pod on the node."""
    count = len(nodes.names)
    requested, capacity = np.zeros((2, len(weights), count))
    for row, resource in enumerate(weights):
        asked = pod.requests.get(resource, 0.0)
        if resource not in nodes.allocatable or (resource not in _NATIVE and asked <= 0):
            continue
        held = nodes.requested.get(resource, np.zeros(count))
        if resource in ("cpu", "memory"):
            asked, held = pod.nonzero.get(resource, asked), nodes.nonzero.get(resource, held)
        capacity[row] = whole(resource, nodes.allocatable[resource])
        requested[row] = whole(resource, held) + whole(resource, asked)
    complete: Mask = np.logical_not(np.isnan(capacity + requested).any(axis=0))
    there = np.nan_to_num(np.clip(capacity, 0, _LARGEST)).astype(np.int64)
    taken = np.nan_to_num(np.clip(requested, 0, _LARGEST)).astype(np.int64)
    return Table(taken, there, there > 0, np.array(list(weights.values()), dtype=np.float64)[:, None], complete)


def per_cent(part: Whole, capacity: Whole) -> Whole:
    """Return the whole per cent of the capacity, rounded down; 0 where the capacity is 0."""
    return part * 100 // np.maximum(capacity, 1) * (capacity > 0)


def mean(resources: Table, scores: Whole, counts: Mask) -> Array:
    """Return the weighted mean (nodes,) of the scores (resources, nodes) that count, not rounded; 0 if none counts."""
    weights = resources.weights * counts
    total = weights.sum(axis=0)
    average = np.zeros(len(resources.complete))
    np.divide((weights * scores).sum(axis=0), total, out=average, where=(total > 0) & resources.complete)
    return average


class Fit:
    """Refuses what NodeResourcesFit's filter refuses; nodes without data pass."""

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by reason, the nodes without enough of what the pod requests."""
        masks = {}
        if "pods" in nodes.allocatable:
            masks[TOO_MANY] = nodes.pods + 1 > nodes.allocatable["pods"]
        for resource, asked in pod.requests.items():
            if asked > 0 and resource in nodes.allocatable:
                masks[lacking(resource)] = beyond(nodes, resource, asked)
        return {reason: mask for reason, mask in masks.items() if mask.any()}

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:
        """Return the request and the free amount of each resource that does not suffice."""
        refused = self.refuse(pod, nodes)
        sentences = []
        if TOO_MANY in refused and refused[TOO_MANY][index]:
            sentences.append(f"pods: {nodes.pods[index]:.0f} of {nodes.allocatable['pods'][index]:.0f} are there")
        for resource, asked in pod.requests.items():
            if (reason := lacking(resource)) in refused and refused[reason][index]:
                sentences.append(short(nodes, resource, "requests", asked, index))
        return sentences


def beyond(nodes: Candidates, resource: str, amount: float) -> Mask:
    """Return (nodes,) True where less than the amount is free; False where that is unknown."""
    left = whole(resource, nodes.allocatable[resource]) - whole(resource, nodes.requested[resource])
    return whole(resource, amount) > left


def lacking(resource: str) -> str:
    """Return the reason to refuse a node that lacks a resource."""
    return f"less {resource} is left than the pod requests"


def short(nodes: Candidates, resource: str, verb: str, asked: float, index: int) -> str:
    """Return a sentence with the amount that the pod wants and the amount that is free."""
    allocatable = float(nodes.allocatable[resource][index])
    left = allocatable - float(nodes.requested[resource][index])
    amounts = [wording.amount(resource, value) for value in (asked, left, allocatable)]
    return f"{resource}: the pod {verb} {amounts[0]}, {amounts[1]} of {amounts[2]} are left"
