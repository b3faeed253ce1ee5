"""Which workload class each pod is of, which kind it declares, and what the pods of a class use together.

What Kubernetes says of a pod comes first, then what the node's agent could tell, and a pod of which neither is known
is of no class. Facts come once per change, often before the pod runs, so they are remembered until the pod is gone.
"""

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from schemas.messages.facts import PodFacts
from schemas.messages.telemetry import MAXIMUM_PODS, OLD_SECONDS, PodUsageBlock
from schemas.workload import Kind

UNNAMED = "-"  # class of pods without a known class

_GONE = ("Succeeded", "Failed")
_WHOLE_SECONDS = 2  # its last second was whole
_STARTING_SECONDS = 3  # what a pod uses while it starts is not what it takes
_YOUNG_SECONDS = 20  # and perhaps not for longer: see `classes`
_HELD_BACK = 0.2  # share of time: its quota bounds what a pod uses
_NEVER_SLEPT = (0.97, 1.01)  # cores used and waited for; both are measured, but not at the same instant


class Sum(NamedTuple):
    """Pods of one class in one block.

    Attributes:
        running: Pods with a running container.
        counted: Those of them whose cpu is known for a whole second, and those whose memory is known.
        used: Cores, and bytes, of the counted ones.
        stalled: How much the counted ones waited for a CPU, compared with the other pods of the block.
        held: How many of them a quota holds back.
        busy: How many of them never slept: what they use and wait for is one core, as of a thread that always runs.
        starting, young: Of these, number, cores and waiting of those that have just started, and of those that have not
            run for long.
        brief: The same of running pods that have not run for a whole second, of which no cpu counts.
        blocked: Of the counted ones that have not just started, those of which it is known whether a thread waited for
            I/O: by how many one did, in the mean, and how many they are.
        declared: How many of the running pods declare that they are serving, and that they are batch.
    """

    running: int = 0
    counted: tuple[int, int] = (0, 0)
    used: tuple[float, float] = (0.0, 0.0)
    stalled: float = 0.0
    held: int = 0
    busy: int = 0
    starting: tuple[int, float, float] = (0, 0.0, 0.0)
    young: tuple[int, float, float] = (0, 0.0, 0.0)
    brief: tuple[int, float, float] = (0, 0.0, 0.0)
    blocked: tuple[float, int] = (0.0, 0)
    declared: tuple[int, int] = (0, 0)

    @property
    def soaking(self) -> bool | None:
        """What the pods declare, most of those that declare anything, ties as serving; None: nothing is declared."""
        serving, batch = self.declared
        return batch > serving if serving or batch else None


class Tally(NamedTuple):
    """One block of pod usage, by class.

    Attributes:
        node: The node.
        at_us: When it was read.
        span_us: Time that it covers.
        churn: Containers came or went within it.
        sums: By class.
        stalled: Sum over all pods.
        pressure: `stalled` is made of pressures; else of CPU use.
        used: Cores and bytes of all pods.
        rest: Cores and bytes of everything that is in no pod; None: the agent does not know.
        aged: The agent says for how long pods run.
    """

    node: str
    at_us: int
    span_us: int
    churn: bool
    sums: dict[str, Sum]
    stalled: float
    pressure: bool
    used: tuple[float, float]
    rest: tuple[float | None, float | None]
    aged: bool


class PodClass(NamedTuple):
    """A pod's class, and the kind that it declares, by the version of its facts."""

    version: int
    workload: str
    kind: Kind | None = None


_NONE: Mapping[str, PodClass] = MappingProxyType({})


class Facts:
    """What Kubernetes has reported of the pods of each node; at most as many a node as one block may list."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, PodClass]] = {}
        self._newest_us: dict[str, int] = {}

    def learn(self, facts: PodFacts) -> None:
        """Take in one pod's state; an older version of it changes nothing."""
        pods = self._nodes.setdefault(facts.node, {})
        before = pods.get(facts.pod)
        if before is not None and facts.version < before.version:
            return
        self._newest_us[facts.node] = facts.at_us
        pods.pop(facts.pod, None)
        if facts.deleted or facts.phase in _GONE:
            return
        if len(pods) >= MAXIMUM_PODS:
            del pods[next(iter(pods))]
        pods[facts.pod] = PodClass(facts.version, facts.workload, facts.kind)

    def pods(self, node: str) -> Mapping[str, PodClass]:
        """Return what is known of a node's pods, by UID."""
        return self._nodes.get(node, _NONE)

    def forget(self, nodes: set[str], reported: Container[str], now_us: int, age_us: int) -> None:
        """Drop nodes that are gone, and those that are not known and of which nothing was reported for so long."""
        for node, at_us in list(self._newest_us.items()):
            if node in nodes or (node not in reported and abs(now_us - at_us) > age_us):
                del self._newest_us[node], self._nodes[node]

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {"nodes": self._nodes, "newest_us": self._newest_us}

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned."""
        self._nodes = {
            # What an older program stored has no kinds.
            node: {pod: PodClass(*stored) for pod, stored in pods.items()}
            for node, pods in dumped["nodes"].items()
        }
        self._newest_us = dict(dumped["newest_us"])


class _Sums:
    """A `Sum` in the making."""

    __slots__ = (
        "batch",
        "brief",
        "busy",
        "bytes",
        "cores",
        "counted",
        "held",
        "memories",
        "running",
        "serving",
        "stalled",
        "starting",
        "waiting",
        "watched",
        "young",
    )  # fmt: skip

    def __init__(self) -> None:
        self.running = self.counted = self.memories = self.held = self.busy = self.serving = self.batch = 0
        self.watched, self.waiting = 0, 0.0
        self.cores = self.bytes = self.stalled = 0.0
        self.starting = self.young = self.brief = (0, 0.0, 0.0)

    def add(
        self,
        kind: Kind | None,
        cores: float | None,
        memory: float | None,
        stalled: float,
        quota: float,
        blocked: float | None,
        age: int,
    ) -> None:
        """Add a running pod; its cpu counts if the pod has run for a whole second."""
        self.running += 1
        if memory is not None:
            self.memories += 1
            self.bytes += memory
        if kind is not None:
            self.serving += kind == "serving"
            self.batch += kind == "batch"
        if cores is None:
            return
        if age < _WHOLE_SECONDS:
            self.brief = _more(self.brief, (1, cores, stalled))
            return
        self.counted += 1
        self.cores += cores
        self.stalled += stalled
        self.held += quota > _HELD_BACK
        self.busy += _NEVER_SLEPT[0] <= cores + stalled <= _NEVER_SLEPT[1]
        if age < _STARTING_SECONDS:
            self.starting = _more(self.starting, (1, cores, stalled))
            return
        if age < _YOUNG_SECONDS:
            self.young = _more(self.young, (1, cores, stalled))
        if blocked is not None:
            self.watched, self.waiting = self.watched + 1, self.waiting + blocked

    @property
    def sum(self) -> Sum:
        """What was added."""
        return Sum(
            self.running,
            (self.counted, self.memories),
            (self.cores, self.bytes),
            self.stalled,
            self.held,
            self.busy,
            self.starting,
            self.young,
            self.brief,
            (self.waiting, self.watched),
            (self.serving, self.batch),
        )


def tally(block: PodUsageBlock, facts: Facts, *, churn: bool) -> Tally:
    """Add up a block's pods by class.

    While some thread of a pod waits for a CPU, at least one core is missing; in a pod that uses several, about as many.
    What its own quota makes it wait is not counted. Where the kernel has no pressure per control group, pods and the
    rest of the system are taken to stall as much as they run.
    """
    pressure = any(value is not None for value in block.cpu_pressure)
    sums: dict[str, _Sums] = {}
    total = 0.0 if pressure else (block.system_cpu_cores or 0.0)
    all_cores = all_memory = 0.0
    ages = block.ages or (OLD_SECONDS,) * len(block.pods)
    kinds = block.kinds or (None,) * len(block.pods)
    facts_of = facts.pods(block.node)
    columns = (
        block.pods, block.containers, block.workloads, block.cpu_cores, block.memory_bytes, block.cpu_pressure,
        block.throttled, block.io_pressure, ages, kinds,
    )  # fmt: skip
    for pod, containers, workload, cpu, memory, pressed, throttled, blocked, age, kind in zip(*columns, strict=True):
        cores, quota = cpu or 0.0, throttled or 0.0
        all_cores += cores
        all_memory += memory or 0.0
        stalled = cores
        if pressure:
            waited = (pressed or 0.0) - quota
            stalled = waited * (max(1.0, cores)) if waited > 0.0 else 0.0
        total += stalled
        if not containers:
            continue
        own = facts_of.get(pod)
        name = (own.workload if own else None) or workload or UNNAMED
        if (into := sums.get(name)) is None:
            into = sums[name] = _Sums()
        into.add((own.kind if own else None) or kind, cpu, memory, stalled, quota, blocked, age)
    rest = block.system_cpu_cores, block.system_memory_bytes
    used = all_cores, all_memory
    by_class, aged = {name: into.sum for name, into in sums.items()}, block.ages is not None
    return Tally(block.node, block.at_us, block.span_us, churn, by_class, total, pressure, used, rest, aged)


def _more(sums: tuple[int, float, float], own: tuple[int, float, float]) -> tuple[int, float, float]:
    return sums[0] + own[0], sums[1] + own[1], sums[2] + own[2]
