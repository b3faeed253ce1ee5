"""What the pods of each workload use on the nodes of one partition, added up once a period of event time.

Kubernetes knows the owner of a pod, its requests, and when it was ready; the node measures its usage. A pod counts once
it is ready, or has run within the period; its CPU is the mean over the period, its memory the last reading. What ready
pods use that no node has measured is as much as the others do (`processors.forecast.share`).
Pods without an owner, and those of owners that no one scales, are left out. A sum also says what the pods of the node
that use most take, so that no node decides alone what a workload uses (`processors.forecast.share`). Of UIDs that
Kubernetes does not have on a node a period keeps only as many as one block lists.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from processors.rows.roster import Roster, Run
from schemas.messages.facts import UNBOUND, PodFacts
from schemas.messages.telemetry import MAXIMUM_PODS, PodUsageBlock

RESOURCES = ("cpu", "memory")
ROUNDING = 1e-6  # sums of floats that are alike differ by less than this share, in the last digits

_LONGEST_SECONDS = 3600.0  # initialization: one pod that waited for days must not count as much as all others
_GONE = ("Succeeded", "Failed")
_UNSCALED = ("DaemonSet", "Job", "CronJob", "Node")


class Workload(NamedTuple):
    """Whose pods they are."""

    namespace: str
    kind: str
    name: str


class Greatest(NamedTuple):
    """Pods of a workload on the node whose pods use most of a resource, each: what they use together, and how many."""

    used: float = 0.0
    pods: int = 0


class Sum(NamedTuple):
    """Pods of one workload.

    Attributes:
        pods: Those that run; the ones that are being deleted still count in what is used alone.
        ready: Those of them that are ready.
        used: Cores, and bytes.
        requested: Cores, and bytes, that `pods` ask for; those that are being deleted left out.
        initialized: Ready pods whose initialization time is known.
        initialization_seconds: Sum of those times, each at most an hour.
        nodes: Nodes that they are on.
        measured: Pods behind `used`; fewer than `ready` where nodes are silent.
        greatest: In cores, and in bytes; without pods: not known.
    """

    pods: int = 0
    ready: int = 0
    used: tuple[float, float] = (0.0, 0.0)
    requested: tuple[float, float] = (0.0, 0.0)
    initialized: int = 0
    initialization_seconds: float = 0.0
    nodes: int = 0
    measured: int = 0
    greatest: tuple[Greatest, Greatest] = (Greatest(), Greatest())


class _Pod(NamedTuple):
    version: int
    workload: Workload
    requested: tuple[float, float]
    stays: bool
    ready: bool
    initialization_seconds: float | None


class _Used(NamedTuple):
    """Of one pod in this period: microseconds seen, core-microseconds, last bytes."""

    span_us: int = 0
    cpu: float = 0.0
    memory: float = 0.0


def add(sums: Iterable[Mapping[Workload, Sum]]) -> dict[Workload, Sum]:
    """Add up sums of several partitions, in the order given."""
    total: dict[Workload, Sum] = {}
    for part in sums:
        for workload, own in part.items():
            total[workload] = _plus(total.get(workload, Sum()), own)
    return total


def _plus(first: Sum, second: Sum) -> Sum:
    return Sum(
        first.pods + second.pods,
        first.ready + second.ready,
        _pair(first.used, second.used),
        _pair(first.requested, second.requested),
        first.initialized + second.initialized,
        first.initialization_seconds + second.initialization_seconds,
        first.nodes + second.nodes,
        first.measured + second.measured,
        (_greater(first.greatest[0], second.greatest[0]), _greater(first.greatest[1], second.greatest[1])),
    )


def _greater(first: Greatest, second: Greatest) -> Greatest:
    """Return the one whose pods use more each; of equal ones the first."""
    return second if second.used * first.pods > first.used * second.pods or not first.pods else first


def _pair(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    return first[0] + second[0], first[1] + second[1]


class Sums:
    """Facts and usage of the pods of one partition, by node. Messages are taken one by one in stream order."""

    def __init__(self, *, seconds: int) -> None:
        """Start empty; a period is so many seconds of event time."""
        self._seconds = seconds
        self._period: int | None = None
        self._pods: dict[str, dict[str, _Pod]] = {}
        self._used: dict[str, dict[str, _Used]] = {}
        self._runs: dict[str, Run] = {}

    def learn(self, facts: PodFacts) -> None:
        """Take in one pod's state; an older version of it changes nothing."""
        if facts.node == UNBOUND:
            return
        pods = self._pods.setdefault(facts.node, {})
        before = pods.get(facts.pod)
        if before is not None and facts.version < before.version:
            return
        pods.pop(facts.pod, None)
        kind, owner = facts.owner_kind, facts.owner
        if facts.deleted or facts.phase in _GONE or not kind or not owner or kind in _UNSCALED:
            if not pods:
                del self._pods[facts.node]
            return
        if len(pods) >= MAXIMUM_PODS:
            del pods[next(iter(pods))]
        pods[facts.pod] = _Pod(
            facts.version,
            Workload(facts.namespace, kind, owner),
            (facts.requests.get("cpu", 0.0), facts.requests.get("memory", 0.0)),
            not facts.terminating,
            facts.ready_us is not None and not facts.terminating,
            facts.initialization_seconds,
        )

    def take(self, block: PodUsageBlock) -> None:
        """Take in one second of a node's pods; one without a running container has not run, one unmeasured neither."""
        run = self._runs.get(block.node)
        if run is not None and run.roster.lists(block):
            run.add(block)
            return
        self._settle(block.node)
        used = self._used.setdefault(block.node, {})
        if (roster := Roster(block)).lists(block):
            self._runs[block.node] = Run(roster, block)
            return
        facts = self._pods.get(block.node, {})
        listed = zip(block.pods, block.containers, block.cpu_cores, block.memory_bytes, strict=True)
        for pod, containers, cores, memory in listed:
            if not containers or (cores is None and memory is None) or not _counts(pod, used, facts):
                continue
            before = used.get(pod, _Used())
            used[pod] = _Used(
                before.span_us + (block.span_us if cores is not None else 0),
                before.cpu + (cores or 0.0) * block.span_us,
                before.memory if memory is None else memory,
            )

    def _settle(self, node: str) -> None:
        """Add what a node's run has to its pods."""
        run = self._runs.pop(node, None)
        if run is None:
            return
        used, facts = self._used[node], self._pods.get(node, {})
        pods, spans = run.roster.uids(), run.spans_us
        before = [used.get(pod, _Used()) for pod in pods]
        # One second after the other, as if each were added when it comes.
        cpu = np.add.accumulate(np.vstack(([own.cpu for own in before], run.cpu * spans[:, None])))[-1]
        span_us = int(spans.sum())
        for pod, own, core_us, memory in zip(pods, before, cpu.tolist(), run.memory[-1].tolist(), strict=True):
            if _counts(pod, used, facts):
                used[pod] = _Used(own.span_us + span_us, core_us, memory)

    def _settle_all(self) -> None:
        for node in list(self._runs):
            self._settle(node)

    def end(self, second: int) -> tuple[int, dict[Workload, Sum]] | None:
        """Return what was used if a period of event time ends with this event second.

        Returns:
            The end of the period (event time, µs) and the sums by workload; None: the period goes on, or is the first
            one, which did not begin here. The next period begins.
        """
        period, before = (second + 1) // self._seconds, self._period
        if period == before:
            return None
        self._period = period
        self._settle_all()
        used, self._used = self._used, {}
        return None if before is None else (period * self._seconds * 1_000_000, self._add(used))

    def _add(self, used: dict[str, dict[str, _Used]]) -> dict[Workload, Sum]:
        total: dict[Workload, Sum] = {}
        for node, pods in used.items():
            facts, shares = self._pods.get(node, {}), dict[Workload, tuple[Greatest, Greatest]]()
            for uid, usage in pods.items():
                pod = facts.get(uid)
                if pod is not None:
                    own = _of(pod, usage)
                    total[pod.workload] = _plus(total.get(pod.workload, Sum()), own)
                    shares[pod.workload] = _plus_pod(shares.get(pod.workload), own.used)
            for workload, (cpu, memory) in shares.items():
                node_only = Sum(nodes=1, measured=cpu.pods, greatest=(cpu, memory))
                total[workload] = _plus(total[workload], node_only)
        for node, facts in self._pods.items():
            seen = used.get(node, {})
            for uid, pod in facts.items():
                if pod.ready and uid not in seen:
                    total[pod.workload] = _plus(total.get(pod.workload, Sum()), _of(pod, _Used()))
        return total

    def forget(self, nodes: set[str], described: Container[str]) -> None:
        """Drop what pods of nodes that are gone have used, and their facts unless Kubernetes has the node."""
        for node in nodes:
            if node not in described:
                self._pods.pop(node, None)
            self._used.pop(node, None)
            self._runs.pop(node, None)

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        self._settle_all()
        return {"seconds": self._seconds, "period": self._period, "pods": self._pods, "used": self._used}

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned; the current period restarts if periods have another length now."""
        self._pods = {
            node: {uid: _pod(*fields) for uid, fields in pods.items()} for node, pods in dumped["pods"].items()
        }
        self._period, self._used, self._runs = None, {}, {}
        if dumped["seconds"] == self._seconds:
            self._period = dumped["period"]
            self._used = {
                node: {uid: _Used(*fields) for uid, fields in used.items()} for node, used in dumped["used"].items()
            }


def _counts(pod: str, used: Collection[str], facts: Container[str]) -> bool:
    """Tell whether a pod's usage is kept: it was before, it has facts, or few others of its node were."""
    return pod in used or len(used) < MAXIMUM_PODS or pod in facts


def _of(pod: _Pod, used: _Used) -> Sum:
    initialized = pod.ready and pod.initialization_seconds is not None
    return Sum(
        int(pod.stays),
        int(pod.ready),
        (used.cpu / used.span_us if used.span_us else 0.0, used.memory),
        pod.requested if pod.stays else (0.0, 0.0),
        int(initialized),
        min(pod.initialization_seconds or 0.0, _LONGEST_SECONDS) if initialized else 0.0,
    )


def _plus_pod(before: tuple[Greatest, Greatest] | None, used: tuple[float, float]) -> tuple[Greatest, Greatest]:
    """Return what a node's pods of a workload use together with one more of them."""
    cpu, memory = before or (Greatest(), Greatest())
    return Greatest(cpu.used + used[0], cpu.pods + 1), Greatest(memory.used + used[1], memory.pods + 1)


def _pod(version: int, workload: list[str], requested: list[float], *rest: Any) -> _Pod:
    return _Pod(version, Workload(*workload), (requested[0], requested[1]), *rest)
