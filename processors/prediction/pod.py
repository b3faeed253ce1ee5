"""The pods of a partition's nodes: their facts from Kubernetes, what they use, and when there was news of them.

A pod is known from its first usage or its facts, whichever comes first, and forgotten when Kubernetes says that it is
over. Facts are sent once per change, so a pod that has some stays as long as its node is known; one that has none is
forgotten when it was not used for a while. Where there is no Kubernetes a container is a pod without requests.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from processors.prediction.tier import pod_sum, priority
from processors.rows.quota import NodeQuota
from processors.rows.roster import Roster
from schemas.messages.facts import PodFacts
from schemas.messages.telemetry import MAXIMUM_PODS, PodUsageBlock

_OVER = ("Succeeded", "Failed")


class Row(NamedTuple):
    """What a check reads of a pod; fields as of `Pod`, request and usage as (cores, bytes)."""

    slot: int
    priority: int
    request: tuple[float, float]
    usage: tuple[float | None, float | None]
    exclusive: bool
    ending: bool
    created_us: int


def departed(priority_class: int) -> Row:
    """Return a pod that is no longer known, and has no statistics any more."""
    return Row(pod_sum.UNBOUND, priority_class, (0.0, 0.0), (None, None), exclusive=False, ending=True, created_us=0)


@dataclass(slots=True)
class Pod:
    """One pod.

    Attributes:
        uid: Its UID, or a container's id.
        slot: Its row among the statistics of pods.
        heard: The partition's event second in which it was last heard of; 0: there was none yet.
        created_us: When it was made, or first seen.
        version: Of its facts; -1: there are none.
        workload: Workload class; empty: unknown.
        priority: Class, as `priority.Priority`.
        exclusive: It owns its cores (Koordinator's LSE).
        cpu, memory: What it asks for, in cores and bytes.
        ending: It is being deleted.
        running: It has a running container.
        used_cpu, used_memory: Its newest usage; None: not known.
        settled: It has inherited, or there was nothing to inherit.
    """

    uid: str
    slot: int
    heard: int
    created_us: int
    version: int = -1
    workload: str = ""
    priority: int = priority.Priority.NONE
    exclusive: bool = False
    cpu: float = 0.0
    memory: float = 0.0
    ending: bool = False
    running: bool = False
    used_cpu: float | None = None
    used_memory: float | None = None
    settled: bool = False

    @property
    def there(self) -> bool:
        """It runs, or Kubernetes says that it will."""
        return self.running or self.version >= 0

    @property
    def row(self) -> "Row":
        """The pod as it is now."""
        used = self.used_cpu, self.used_memory
        return Row(
            self.slot, self.priority, (self.cpu, self.memory), used, self.exclusive, self.ending, self.created_us
        )

    def learn(self, facts: PodFacts) -> None:
        """Take over what Kubernetes says."""
        self.version, self.created_us = facts.version, facts.created_us
        self.workload = facts.workload
        self.priority = int(priority.of(facts.labels, facts.priority, facts.qos))
        self.exclusive = facts.labels.get(priority.QOS_LABEL) == "LSE"
        self.cpu, self.memory = facts.requests.get("cpu", 0.0), facts.requests.get("memory", 0.0)
        self.ending = facts.terminating


@dataclass(slots=True, eq=False)
class Repeat:
    """The running pods of a node that lists the same ones second after second.

    Attributes:
        roster: What it lists.
        pods: Those of them that run.
        newest: The newest second that is not in the pods yet, and its event second; None: all is in.
    """

    roster: Roster
    pods: list[Pod]
    newest: tuple[PodUsageBlock, int] | None = None


class Pods:
    """Pods by node; slots of those that are gone are used again by none until `keep`.

    Attributes:
        slots: Rows of statistics in use; at most so many as the limit.
        made: New pods of each node since `keep`; at most as many as one block may list.
    """

    def __init__(self, quota: NodeQuota) -> None:
        """Start empty; `quota` says how many pods all nodes may have."""
        self._quota = quota
        self.made: dict[str, int] = {}
        self._nodes: dict[str, dict[str, Pod]] = {}
        self._repeats: dict[str, Repeat] = {}
        self.slots = 0

    @property
    def nodes(self) -> set[str]:
        """Nodes that have pods."""
        return {node for node, pods in self._nodes.items() if pods}

    def of(self, node: str) -> dict[str, Pod]:
        """Return a node's pods by UID."""
        self._settle(node)
        return self._nodes.get(node, {})

    def all(self) -> Iterator[Pod]:
        """Yield every pod, node by node."""
        for node in self._nodes:
            yield from self.of(node).values()

    def learn(self, facts: PodFacts, second: int) -> None:
        """Take in a pod's facts in an event second of the partition; an older version changes nothing."""
        self._settle(facts.node)
        self._repeats.pop(facts.node, None)
        pods = self._nodes.setdefault(facts.node, {})
        pod = pods.get(facts.pod)
        if pod is not None and facts.version < pod.version:
            return
        if facts.deleted or facts.phase in _OVER:
            pods.pop(facts.pod, None)
            return
        if pod is None:
            pod = self._new(facts.node, facts.pod, second, facts.created_us)
        if pod is None:
            return
        pod.heard = max(pod.heard, second)
        pod.learn(facts)

    def use(self, block: PodUsageBlock, second: int) -> Iterator[tuple[Pod, float | None, float | None]]:
        """Take in what was used, in an event second of the partition; yields each running pod with cores and bytes."""
        self._settle(block.node)
        self._repeats.pop(block.node, None)
        pods = self._nodes.setdefault(block.node, {})
        columns = zip(block.pods, block.containers, block.cpu_cores, block.memory_bytes, strict=True)
        listed: dict[str, Pod] = {}
        refused = self._quota.refused_pods
        for index, (uid, containers, cpu, memory) in enumerate(columns):
            if not containers:
                continue
            pod = pods.get(uid)
            if pod is None:
                pod = self._new(block.node, uid, second, block.at_us)
                if pod is None:
                    continue
                pod.workload = block.workloads[index] or ""
            listed[uid] = pod
            pod.heard, pod.running, pod.used_cpu, pod.used_memory = second, True, cpu, memory
            yield pod, cpu, memory
        for uid, pod in pods.items():
            if pod.running and uid not in listed:
                pod.running, pod.used_cpu, pod.used_memory = False, None, None
        if refused == self._quota.refused_pods and all(pods.get(uid) is pod for uid, pod in listed.items()):
            self._repeats[block.node] = Repeat(Roster(block), list(listed.values()))

    def repeat(self, block: PodUsageBlock, second: int) -> Repeat | None:
        """Take in a second that lists the same pods as the one before; None: it does not, and nothing was taken in."""
        repeat = self._repeats.get(block.node)
        if repeat is None or not repeat.roster.lists(block):
            return None
        repeat.newest = block, second
        return repeat

    def _settle(self, node: str) -> None:
        """Let a node's pods know their newest usage."""
        repeat = self._repeats.get(node)
        if repeat is None or repeat.newest is None:
            return
        (block, second), repeat.newest = repeat.newest, None
        for index, pod in zip(repeat.roster.running, repeat.pods, strict=True):
            pod.heard, pod.used_cpu, pod.used_memory = second, block.cpu_cores[index], block.memory_bytes[index]

    def _new(self, node: str, uid: str, second: int, created_us: int) -> Pod | None:
        """Return a new pod; None: there are too many of its node, or of all."""
        pods, made = self._nodes[node], self.made.get(node, 0)
        if made >= MAXIMUM_PODS or self.slots >= self._quota.pods_max:
            self._quota.refused_pods += 1
            return None
        self.made[node] = made + 1
        if len(pods) >= MAXIMUM_PODS:
            # What is gone goes first, or a node that runs jobs would forget what has run there the longest.
            del pods[next((gone for gone, pod in pods.items() if not pod.there), next(iter(pods)))]
        pod = pods[uid] = Pod(uid, self.slots, second, created_us)
        self.slots += 1
        return pod

    def keep(self, gone: set[str], present: Container[str], oldest: Callable[[str], int]) -> list[int]:
        """Forget nodes that are gone, and pods that were not heard of since an event second of their node.

        A pod with facts stays while its node is present, with or without news: reports, or Kubernetes has it.

        Returns:
            The old slots of those that stay, in the order of their new ones.
        """
        slots: list[int] = []
        for node in list(self._nodes):
            is_present, since = node in present, oldest(node)
            pods = self.of(node) if is_present or node not in gone else {}
            kept = {uid: pod for uid, pod in pods.items() if pod.heard >= since or (is_present and pod.version >= 0)}
            if len(kept) < len(pods) or not kept:
                self._repeats.pop(node, None)
            if not kept:
                del self._nodes[node]
                continue
            self._nodes[node] = kept
            for pod in kept.values():
                slots.append(pod.slot)
                pod.slot = len(slots) - 1
        self.slots = len(slots)
        self.made.clear()
        return slots

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        """Return everything as JSON types."""
        # As `dataclasses.asdict`, which copies every value and takes ten times as long.
        names = [field.name for field in fields(Pod)]
        return {
            node: [{name: getattr(pod, name) for name in names} for pod in self.of(node).values()]
            for node in self._nodes
        }

    def load(self, dumped: dict[str, list[dict[str, Any]]], slots: int, made: dict[str, int]) -> None:
        """Take over what `dump` returned.

        Raises:
            ValueError: A pod has a field too many or too few, or a slot that there is not, or is another's.
        """
        names = {field.name for field in fields(Pod)}
        listed = [pod for pods in dumped.values() for pod in pods]
        if any(pod.keys() != names for pod in listed):
            raise ValueError("state has pods of another form")
        used = {pod["slot"] for pod in listed}
        if len(used) != len(listed) or not used <= set(range(slots)):
            raise ValueError(f"state has {len(listed)} pods that do not fit into {slots} slots, each into its own")
        self._repeats = {}
        self._nodes = {node: {pod["uid"]: Pod(**pod) for pod in pods} for node, pods in dumped.items()}
        self.slots, self.made = slots, dict(made)
