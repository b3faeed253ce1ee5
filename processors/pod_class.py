"""Which workload class each pod is of, and what the pods of a class use together.

What Kubernetes says of a pod comes first, then what the node's agent could tell, and a pod of which neither is known
is of no class. Facts come once per change, often before the pod runs, so they are remembered until the pod is gone.
"""

from collections.abc import Container
from typing import Any, NamedTuple

from schemas.facts import PodFacts
from schemas.telemetry import MAXIMUM_PODS, PodUsageBlock

_GONE = ("Succeeded", "Failed")


class Sum(NamedTuple):
    """Pods of one class in one block.

    Attributes:
        running: Pods with a running container.
        counted: Those of them whose cpu, and whose memory, is known.
        used: Cores, and bytes, of the counted ones.
        stalled: How much they waited for a CPU, compared with the other pods of the block.
    """

    running: int = 0
    counted: tuple[int, int] = (0, 0)
    used: tuple[float, float] = (0.0, 0.0)
    stalled: float = 0.0


class Tally(NamedTuple):
    """One block of pod usage, by class.

    Attributes:
        node: The node.
        at_us: When it was read.
        span_us: Time that it covers.
        churn: Containers came or went within it.
        sums: By class.
        stalled: Sum over all pods, those of no class too.
        pressure: `stalled` is made of pressures; else of CPU use.
    """

    node: str
    at_us: int
    span_us: int
    churn: bool
    sums: dict[str, Sum]
    stalled: float
    pressure: bool


class Facts:
    """What Kubernetes has said of the pods of each node; at most as many a node as one block may list."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, tuple[int, str]]] = {}
        self._newest_us: dict[str, int] = {}

    def learn(self, facts: PodFacts) -> None:
        """Take in one pod's state; an older version of it changes nothing."""
        known = self._nodes.setdefault(facts.node, {})
        version, _ = known.get(facts.pod, (-1, ""))
        if facts.version < version:
            return
        self._newest_us[facts.node] = facts.at_us
        known.pop(facts.pod, None)
        if facts.deleted or facts.phase in _GONE:
            return
        if len(known) >= MAXIMUM_PODS:
            del known[next(iter(known))]
        known[facts.pod] = facts.version, facts.workload

    def of(self, node: str, pod: str) -> str | None:
        """Return the pod's workload class, or None if nothing is known of the pod."""
        found = self._nodes.get(node, {}).get(pod)
        return found[1] if found else None

    def forget(self, nodes: set[str], known: Container[str], now_us: int, age_us: int) -> None:
        """Drop nodes that are gone, and those that are not known and of which nothing was said for so long."""
        for node, at_us in list(self._newest_us.items()):
            if node in nodes or (node not in known and abs(now_us - at_us) > age_us):
                del self._newest_us[node], self._nodes[node]

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {"nodes": self._nodes, "newest_us": self._newest_us}

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned."""
        self._nodes = {
            node: {pod: (version, workload) for pod, (version, workload) in pods.items()}
            for node, pods in dumped["nodes"].items()
        }
        self._newest_us = dict(dumped["newest_us"])


def tally(block: PodUsageBlock, facts: Facts, *, churn: bool) -> Tally:
    """Add up a block's pods by class.

    While some thread of a pod waits for a CPU, at least one core is missing; in a pod that uses several, about as many.
    What its own quota makes it wait is not counted. Where the kernel has no pressure per control group, pods and the
    rest of the system are taken to stall as much as they run.
    """
    pressure = any(value is not None for value in block.cpu_pressure)
    sums: dict[str, Sum] = {}
    total = 0.0 if pressure else (block.system_cpu_cores or 0.0)
    for index, pod in enumerate(block.pods):
        cores, memory = block.cpu_cores[index], block.memory_bytes[index]
        if pressure:
            waited = max(0.0, (block.cpu_pressure[index] or 0.0) - (block.throttled[index] or 0.0))
            stalled = waited * max(1.0, cores or 0.0)
        else:
            stalled = cores or 0.0
        total += stalled
        name = facts.of(block.node, pod) or block.workloads[index]
        if name is None or not block.containers[index]:
            continue
        before = sums.get(name) or Sum()
        sums[name] = Sum(
            before.running + 1,
            (before.counted[0] + (cores is not None), before.counted[1] + (memory is not None)),
            (before.used[0] + (cores or 0.0), before.used[1] + (memory or 0.0)),
            before.stalled + stalled,
        )
    return Tally(block.node, block.at_us, block.span_us, churn, sums, total, pressure)
