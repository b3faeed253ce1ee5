"""Placement of a real task list on its real cluster by what tasks request: the openb lists of Alibaba's GPU cluster.

Tasks come in their order and stay, so what is judged is how well a strategy packs. GPUs are one divisible amount a
node, in thousandths: that a share of a GPU may lie across two of them is ignored. A node's free GPUs are fragments for
a task that does not fit there; fragmentation is the share of all free GPUs that are fragments for the mean GPU task of
the list.

Source: cluster-trace-gpu-v2023; "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent", USENIX ATC 2023.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas import settings as all_settings
from schemas.messages.facts import NodeFacts, PodFacts
from sinks.extender import pod as pods
from sinks.extender.candidate import Candidates, Pod
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.strategy.availability import Availability
from sinks.extender.strategy.node_resources.least_allocated import LeastAllocated
from sinks.extender.strategy.node_resources.most_allocated import MostAllocated
from sinks.extender.strategy.node_resources.requested_to_capacity_ratio import RequestedToCapacityRatio
from spazio.simulation.schedulers.by_requests import fitting

Array = NDArray[np.float64]

NODES, TASKS = "openb_node_list_all_node.csv", "openb_pod_list_default.csv"
_GPU = "example.com/gpu-milli"
_MIB = 2.0**20
_WEIGHTS = {"cpu": 1.0, "memory": 1.0, _GPU: 1.0}
_RESOURCES = tuple(_WEIGHTS)
_AT_US = 1


class Result(NamedTuple):
    """What a strategy made of the list.

    Attributes:
        placed: Tasks that found a node.
        gpus: Share of the GPUs that they have.
        fragmentation: Share of the free GPUs that are fragments.
        nodes: Nodes with a task.
    """

    placed: int
    gpus: float
    fragmentation: float
    nodes: int


class Lists(NamedTuple):
    """Nodes and tasks, (nodes or tasks, resources): cores, bytes, thousandths of a GPU."""

    nodes: Array
    tasks: Array


def read(folder: Path, *, most: int | None = None) -> Lists:
    """Read the lists; `most` tasks at most.

    Raises:
        OSError, KeyError, ValueError: A list is missing or is none.
    """
    with (folder / NODES).open(newline="") as file:
        nodes = [_amounts(row, 1000 * int(row["gpu"])) for row in csv.DictReader(file)]
    with (folder / TASKS).open(newline="") as file:
        tasks = [_amounts(row, int(row["num_gpu"]) * int(row["gpu_milli"])) for row in csv.DictReader(file)]
    return Lists(np.array(nodes), np.array(tasks[:most]))


def _amounts(row: Mapping[str, str], gpu_milli: int) -> tuple[float, float, float]:
    return float(row["cpu_milli"]) / 1000, float(row["memory_mib"]) * _MIB, float(gpu_milli)


def _by_room(asked: Pod, nodes: Candidates) -> Array:
    """Return the scores of the extender's default strategy if pods take what they request."""
    room = np.full(len(nodes.names), np.inf)
    for resource, amount in asked.requests.items():
        if amount > 0:
            room = np.minimum(room, (nodes.allocatable[resource] - nodes.requested[resource]) / amount)
    empty = np.zeros(len(room))
    seen = replace(nodes, room=room, sure=np.floor(room), reserved=empty, unseen=empty > 0)
    return Availability().score(asked, seen)


STRATEGIES: Mapping[str, Callable[[Pod, Candidates], Array]] = {
    "availability, usage as requested": _by_room,
    "least_allocated": LeastAllocated(_WEIGHTS).score,
    "most_allocated": MostAllocated(_WEIGHTS).score,
    "requested_to_capacity_ratio": RequestedToCapacityRatio(_WEIGHTS, [(0, 0), (100, 100)]).score,
}


def place(lists: Lists, score: Callable[[Pod, Candidates], Array], *, seed: int = 1) -> Result:
    """Place all tasks in their order, ties at random."""
    random = np.random.default_rng(seed)
    state, names = ClusterState(all_settings.load({}, environ={})), [f"n{number}" for number in range(len(lists.nodes))]
    for name, amounts in zip(names, lists.nodes.tolist(), strict=True):
        state.describe(_node(name, amounts))
    rows, free, used = state.rows.rows(names), lists.nodes.copy(), np.zeros(len(names), dtype=np.bool_)
    placed = 0
    for number, amounts in enumerate(lists.tasks.tolist()):
        asked = pods.parse(_object(number, amounts))
        nodes = state.candidates(asked, names, rows, _AT_US)
        fits = fitting(asked, nodes)
        if not fits.any():
            continue
        scores = np.where(fits, score(asked, nodes), -1.0)
        chosen = int(random.choice(np.flatnonzero(scores == scores.max())))
        state.pods.hear(_bound(number, names[chosen], asked))
        free[chosen] -= amounts
        used[chosen] = True
        placed += 1
    whole = lists.nodes[:, 2].sum()
    return Result(placed, 1 - free[:, 2].sum() / whole, fragmentation(free, lists.tasks), int(used.sum()))


def fragmentation(free: Array, tasks: Array) -> float:
    """Return the share of free GPUs (nodes, resources) on which the mean GPU task does not fit; 0 if none is free.

    >>> fragmentation(np.array([[0.0, 1.0, 500.0], [4.0, 1.0, 500.0]]), np.array([[1.0, 1.0, 500.0]]))
    0.5
    """
    shapes, count = np.unique(tasks[tasks[:, 2] > 0], axis=0, return_counts=True)
    gpus = np.maximum(free[:, 2], 0.0)
    if not gpus.sum():
        return 0.0
    misfits = np.zeros(len(free))
    for shape, share in zip(shapes, count / count.sum(), strict=True):
        misfits += share * (free + 1e-6 < shape).any(axis=1)
    return float((gpus * misfits).sum() / gpus.sum())


def _node(name: str, amounts: Sequence[float]) -> NodeFacts:
    capacity = dict(zip(_RESOURCES, amounts, strict=True)) | {"pods": 1000.0}
    return NodeFacts(
        node=name, uid=name, version=1, at_us=_AT_US, created_us=_AT_US, ready=True, unschedulable=False,
        allocatable=capacity, capacity=capacity, labels={}, annotations={}, taints=[],
    )  # fmt: skip


def _object(number: int, amounts: Sequence[float]) -> dict[str, object]:
    requests = {name: str(amount) for name, amount in zip(_RESOURCES, amounts, strict=True) if amount}
    return {
        "metadata": {"uid": f"task-{number}", "namespace": "openb", "name": f"task-{number}", "labels": {}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
    }


def _bound(number: int, node: str, asked: Pod) -> PodFacts:
    return PodFacts(
        node=node, pod=f"task-{number}", namespace="openb", name=f"task-{number}", version=2, at_us=_AT_US,
        phase="Running", created_us=_AT_US, requests=dict(asked.requests), limits={}, labels={}, annotations={},
        workload="task",
    )  # fmt: skip
