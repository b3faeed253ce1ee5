"""Which workload class each pod is of, and which kind it declares.

What Kubernetes says of a pod comes first, then what the node's agent could tell, and a pod of which neither is known
is of no class. Facts come once per change, often before the pod runs, so they are remembered until the pod is gone.
"""

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kube.pod import belongs_to_node, of_file
from schemas.messages.facts import PodFacts
from schemas.messages.telemetry import MAXIMUM_PODS, PodUsageBlock
from schemas.workload import Kind

UNNAMED = "-"  # class of pods whose class nothing says, and of those of classes that a node does not tell apart

_GONE = ("Succeeded", "Failed")
_KINDS = {"batch": 1.0, "serving": 0.0}


class Grouping(NamedTuple):
    """Which class each pod of a block is of.

    Attributes:
        names: Classes that have a pod with a running container.
        number: (pods,) which of them the pod is of; -1: none of its containers runs.
        declared: (pods,) kind that it declares, 1: batch, 0: serving; NaN: none.
        recurring: (pods,) True: the node may be given another like it; no pod of a DaemonSet or from a file is.
    """

    names: list[str]
    number: NDArray[np.intp]
    declared: NDArray[np.float64]
    recurring: NDArray[np.bool_]


class Tally(NamedTuple):
    """One block of pod usage with the classes of its pods.

    Attributes:
        node: The node.
        at_us: When it was read.
        block: What the pods use, together not much more than the node has.
        grouping: Their classes.
    """

    node: str
    at_us: int
    block: PodUsageBlock
    grouping: Grouping


class PodClass(NamedTuple):
    """A pod's class and the kind that it declares, by the version of its facts; `recurring` as in `Grouping`."""

    version: int
    workload: str
    kind: Kind | None = None
    recurring: bool = True


_Listed = tuple[list[str], list[int], list[str | None], list[Kind | None] | None]

_NONE: Mapping[str, PodClass] = MappingProxyType({})


class Facts:
    """What Kubernetes has reported of the pods of each node; at most as many a node as one block may list."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, PodClass]] = {}
        self._newest_us: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._groups: dict[str, tuple[_Listed, Grouping]] = {}  # of the block before

    def learn(self, facts: PodFacts) -> None:
        """Take in one pod's state; an older version of it changes nothing."""
        pods = self._nodes.setdefault(facts.node, {})
        before = pods.get(facts.pod)
        if before is not None and facts.version < before.version:
            return
        self._newest_us[facts.node] = facts.at_us
        self._groups.pop(facts.node, None)
        pods.pop(facts.pod, None)
        if facts.deleted or facts.phase in _GONE:
            return
        if len(pods) >= MAXIMUM_PODS:
            del pods[next(iter(pods))]
        pods[facts.pod] = PodClass(facts.version, facts.workload, facts.kind, not belongs_to_node(facts))

    def pods(self, node: str) -> Mapping[str, PodClass]:
        """Return what is known of a node's pods, by UID."""
        return self._nodes.get(node, _NONE)

    def waiting(self, node: str) -> int:
        """Return how many pods a node has, by Kubernetes, of which no container ran in its newest block of usage."""
        return self._waiting.get(node, 0)

    def forget(self, nodes: set[str], reported: Container[str], now_us: int, age_us: int) -> None:
        """Drop nodes that are gone, and those that are not known and of which nothing was reported for so long."""
        for node, at_us in list(self._newest_us.items()):
            if node in nodes or (node not in reported and abs(now_us - at_us) > age_us):
                del self._newest_us[node], self._nodes[node]
                self._waiting.pop(node, None)
                self._groups.pop(node, None)
        for node in nodes & self._groups.keys():
            del self._groups[node]

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {"nodes": self._nodes, "newest_us": self._newest_us, "waiting": self._waiting}

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned."""
        self._nodes = {
            # What an older program stored has no kinds.
            node: {pod: PodClass(*stored) for pod, stored in pods.items()}
            for node, pods in dumped["nodes"].items()
        }
        self._newest_us, self._waiting = dict(dumped["newest_us"]), dict(dumped.get("waiting", {}))
        self._groups.clear()

    def group(self, block: PodUsageBlock) -> Grouping:
        """Return which class each pod of a block is of; most blocks list the same pods as the one before."""
        listed = block.pods, block.containers, block.workloads, block.kinds
        before = self._groups.get(block.node)
        if before is not None and before[0] == listed:
            return before[1]
        own, names = self.pods(block.node), dict[str, int]()
        number, declared = np.full(len(block.pods), -1, dtype=np.intp), np.full(len(block.pods), np.nan)
        recurring = np.ones(len(block.pods), dtype=np.bool_)
        kinds = block.kinds or (None,) * len(block.pods)
        columns = zip(block.pods, block.containers, block.workloads, kinds, strict=True)
        for position, (pod, containers, workload, kind) in enumerate(columns):
            if containers:
                stated = own.get(pod)
                name = (stated.workload if stated else None) or workload or UNNAMED
                number[position] = names.setdefault(name, len(names))
                # A static pod's UID tells also where no facts of it come, and where an older program stored them.
                recurring[position] = not of_file(pod) and (stated is None or stated.recurring)
                if (wanted := (stated.kind if stated else None) or kind) is not None:
                    declared[position] = _KINDS[wanted]
        grouping = Grouping(list(names), number, declared, recurring)
        self._groups[block.node] = listed, grouping
        running = {pod for pod, containers in zip(block.pods, block.containers, strict=True) if containers}
        if waiting := len(own.keys() - running):
            self._waiting[block.node] = waiting
        else:
            self._waiting.pop(block.node, None)
        return grouping
