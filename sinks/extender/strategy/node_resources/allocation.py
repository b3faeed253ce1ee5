"""What kube-scheduler's NodeResourcesFit counts, in its own whole numbers, for the strategies that score as it does.

CPU is counted in thousandths of a core and everything else in units, both rounded up, and every division drops what is
left over; with floating point instead, ties would break where kube-scheduler sees none. Scores count a container that
states no CPU or memory as 0.1 cores or 200 MiB, the filter counts it as nothing. An extended resource that the pod does
not ask for, and a resource that a node has none of, counts neither in the sum nor in the weights.

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
_LARGEST = 9e16  # a hundred times as much still is a 64-bit number
_NOISE = 1e-6  # what sums of floating-point cores may be off, in thousandths of a core


class Table(NamedTuple):
    """What is counted of each resource.

    Attributes:
        requested: (resources, nodes), with the pod.
        capacity: (resources, nodes).
        counts: (resources, nodes), whether the resource enters the node's score.
        weights: (resources, 1).
        known: (nodes,), whether everything that counts is known.
    """

    requested: Whole
    capacity: Whole
    counts: Mask
    weights: Array
    known: Mask


def whole(resource: str, amounts: Array | float) -> Array:
    """Return amounts in thousandths of a core or in units, rounded up; NaN stays."""
    return np.ceil(np.asarray(amounts, dtype=np.float64) * (1000 if resource == "cpu" else 1) - _NOISE)


def table(pod: Pod, nodes: Candidates, weights: Mapping[str, float]) -> Table:
    """Return what there is of each resource with a weight, and how much of it is requested once the pod is there."""
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
    known: Mask = np.logical_not(np.isnan(capacity + requested).any(axis=0))
    there = np.nan_to_num(np.clip(capacity, 0, _LARGEST)).astype(np.int64)
    taken = np.nan_to_num(np.clip(requested, 0, _LARGEST)).astype(np.int64)
    return Table(taken, there, there > 0, np.array(list(weights.values()), dtype=np.float64)[:, None], known)


def per_cent(part: Whole, capacity: Whole) -> Whole:
    """Return the whole hundredths of the capacity, rounded down; 0 where there is none of it."""
    return part * 100 // np.maximum(capacity, 1) * (capacity > 0)


def mean(found: Table, scores: Whole, counts: Mask) -> Array:
    """Return the weighted mean (nodes,) of those scores (resources, nodes) that count, not rounded; 0 if none does."""
    weights = found.weights * counts
    total = weights.sum(axis=0)
    average = np.zeros(len(found.known))
    np.divide((weights * scores).sum(axis=0), total, out=average, where=(total > 0) & found.known)
    return average


class Fit:
    """Refuses what NodeResourcesFit's filter refuses; nodes of which nothing is known pass."""

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by reason, the nodes without enough of what the pod requests."""
        found = {}
        if "pods" in nodes.allocatable:
            found[TOO_MANY] = nodes.pods + 1 > nodes.allocatable["pods"]
        for resource, asked in pod.requests.items():
            if asked > 0 and resource in nodes.allocatable:
                found[lacking(resource)] = beyond(nodes, resource, asked)
        return {reason: mask for reason, mask in found.items() if mask.any()}

    def needs(self, pod: Pod, nodes: Candidates, place: int) -> Sequence[str]:
        """Say how much is asked for and how much is left of each resource that does not suffice."""
        refused = self.refuse(pod, nodes)
        said = []
        if TOO_MANY in refused and refused[TOO_MANY][place]:
            said.append(f"{nodes.pods[place]:.0f} pods of {nodes.allocatable['pods'][place]:.0f} are there")
        for resource, asked in pod.requests.items():
            if (reason := lacking(resource)) in refused and refused[reason][place]:
                said.append(short(nodes, resource, "requests", asked, place))
        return said


def beyond(nodes: Candidates, resource: str, amount: float) -> Mask:
    """Return the nodes (nodes,) that have less of a resource left; not those of which it is unknown."""
    left = whole(resource, nodes.allocatable[resource]) - whole(resource, nodes.requested[resource])
    return whole(resource, amount) > left


def lacking(resource: str) -> str:
    """Return the reason for which a node is refused that lacks a resource."""
    return f"less {resource} is left than the pod requests"


def short(nodes: Candidates, resource: str, verb: str, asked: float, place: int) -> str:
    """Say how much of a resource the pod wants and how much is left."""
    there = float(nodes.allocatable[resource][place])
    left = there - float(nodes.requested[resource][place])
    said = [wording.amount(resource, value) for value in (asked, left, there)]
    return f"{resource}: the pod {verb} {said[0]}, {said[1]} of {said[2]} are left"
