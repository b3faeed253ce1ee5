"""Seconds of a simulated cluster as the messages that agents and a cluster watch publish, each with its time.

What of a message depends on when the simulation began (`seq` and `at_us`) stands in its head and is filled in last; so
a second that was made once can be sent again as a later one.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.simulated import fleet, text
from producers.simulated.cluster import Change, Cluster, Second
from schemas import codec, metric
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.telemetry import ContainerEvent

_SECOND_US = 1_000_000
_STARTS_SECONDS = 0.05  # from created to started
_DELETED_SECONDS = 0.1  # from exited to deleted
_MAX_PODS = 110
_PODS = b'%b%b"cpu_cores":[%b],"memory_bytes":[%b],"cpu_pressure":[%b],%b"ages":[%b]}'


class Timed(NamedTuple):
    """A message that waits for its time.

    Attributes:
        due_us: When it is published, in microseconds since the beginning of the simulation.
        kind: Kind of message.
        node: Number of its node.
        seq: Second within its boot, or 0 if it has none.
        head: Its text up to and with `seq` and `at_us`, which stand there as `%d`; empty: nothing is filled in.
        body: The rest.
        identity: End of its id, behind kind, node and boot; empty: its `seq`.
    """

    due_us: int
    kind: str
    node: int
    seq: int
    head: bytes
    body: bytes
    identity: bytes = b""

    def payload(self, at_us: int, later: int = 0) -> bytes:
        """Return the payload of a simulation that began at a time, sent so many seconds later than it was made for."""
        if not self.head:
            return self.body
        return self.head % (self.seq + later, at_us + self.due_us + later * _SECOND_US - self._behind) + self.body

    @property
    def _behind(self) -> int:
        return _SECOND_US if self.kind == "samples" else 0  # a block says when its first sample was taken


class _Listed(NamedTuple):
    """What a node's messages about its pods say again as long as it runs the same ones.

    Attributes:
        pods: Workloads and serials of the pods, as bytes.
        names: The text of the lists that name them, and of their containers.
        zeros: The text of the lists that are zero for all of them.
    """

    pods: bytes
    names: bytes
    zeros: bytes


class Writer:
    """Writes the messages of one simulated cluster.

    Attributes:
        boot: Boot ids of the nodes.
        start_us: When the simulation begins, in microseconds since the epoch; may be set before the first second.
    """

    def __init__(
        self, cluster: Cluster, start_us: int, kinds: tuple[str, ...], metrics: tuple[str, ...] = metric.NAMES
    ) -> None:
        """Prepare what does not change.

        Args:
            cluster: The cluster.
            start_us: When it begins, in microseconds since the epoch.
            kinds: Kinds of messages to make.
            metrics: Metrics of a block of samples.
        """
        self._cluster, self._fleet, self.start_us, self._kinds = cluster, cluster.fleet, start_us, kinds
        own = cluster.fleet
        # Nodes that are simulated again have rebooted; else folds would take their blocks for old ones.
        # The half of the beginning that moves fast is in front, since it distinguishes boots.
        digits = f"{start_us % 2**32:08x}{start_us >> 32:08x}"
        self.boot = [
            f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15]}00-{node:012x}" for node in range(len(own.name))
        ]
        names = json.dumps(metrics)
        self._metrics = metrics
        nodes = range(len(own.name))
        heads = [f'{{"v":1,"node":"{own.name[node]}","boot":"{self.boot[node]}","seq":%d,"at_us":%d,' for node in nodes]
        self._heads = [head.encode() for head in heads]
        self._sizes = [
            f'"step_us":100000,"cpus":{own.cores[node]},"memory_bytes":{own.memory[node]},'
            f'"metrics":{names},"values":['.encode()
            for node in nodes
        ]
        self._names: dict[tuple[int, int], tuple[str, str]] = {}
        self._lists: dict[int, _Listed] = {}

    def begin(self) -> Iterator[Timed]:
        """Yield what the cluster watch says of the nodes and pods that are there at the start."""
        for node in range(len(self._fleet.name)):
            due_us = int(self._fleet.phase_us[node])
            if "nodefacts" in self._kinds:
                facts = self._node_facts(node)
                identity = f"{facts.uid}:{facts.version}".encode()
                yield Timed(due_us, "nodefacts", node, 0, b"", codec.encode(facts), identity)
            if "podfacts" in self._kinds:
                for slot in np.flatnonzero(self._cluster.pods.workload[node] >= 0).tolist():
                    pods = self._cluster.pods
                    change = Change(node, int(pods.workload[node, slot]), int(pods.serial[node, slot]), 0.0, True)
                    yield self._pod_facts(0, change)

    def write(self, second: Second) -> list[Timed]:
        """Return the messages of one second in order of their time."""
        messages: list[Timed] = []
        gone: list[tuple[int, int]] = []
        if "samples" in self._kinds:
            messages += self._samples(second)
        if "pods" in self._kinds:
            messages += self._pods(second)
        for change in second.changes:
            if not change.arrived:
                gone.append((change.node, change.serial))
            if "containers" in self._kinds:
                messages += self._events(second.number, change)
            if "podfacts" in self._kinds:
                messages.append(self._pod_facts(second.number, change))
        for pod in gone:
            self._names.pop(pod, None)
        messages.sort(key=lambda message: message.due_us)
        return messages

    def _samples(self, second: Second) -> Iterator[Timed]:
        columns = (self._due(second.number + 1), self._seqs(second.number), self._heads, self._sizes)
        for node, (due_us, seq, head, sizes, values) in enumerate(
            zip(*columns, text.values(second.samples, self._metrics), strict=True)
        ):
            yield Timed(due_us, "samples", node, seq, head, b"%b%b]}" % (sizes, values))

    def _pods(self, second: Second) -> Iterator[Timed]:
        nodes = len(self._fleet.name)
        bounds = np.searchsorted(second.node, np.arange(nodes + 1)).tolist()
        pods = np.stack((second.workload, second.serial), axis=1)
        cores, waiting = text.cores(second.cores), text.cores(second.waiting)
        memory, ages = text.sizes(second.memory), text.counts(second.age)
        system = zip(np.round(second.system_cores, 4).tolist(), second.system_memory.tolist(), strict=True)
        columns = (self._due(second.number + 1), self._seqs(second.number + 1), self._heads, system)
        for node, (due_us, seq, head, (system_cores, system_memory)) in enumerate(zip(*columns, strict=True)):
            of = slice(bounds[node], bounds[node + 1])
            listed = self._list(node, pods[of])
            beside = f'"span_us":1000000,"system_cpu_cores":{system_cores},"system_memory_bytes":{system_memory},'
            columns_of = (beside.encode(), listed.names, cores[of], memory[of], waiting[of], listed.zeros, ages[of])
            yield Timed(due_us, "pods", node, seq, head, _PODS % columns_of)

    def _list(self, node: int, pods: NDArray[np.int64]) -> _Listed:
        """Return the texts of a node's pods, (pods, workload and serial)."""
        key, listed = pods.tobytes(), self._lists.get(node)
        if listed is not None and listed.pods == key:
            return listed
        named = [self._named(node, *pod) for pod in pods.tolist()]
        classes = [fleet.CLASSES[workload] for workload in pods[:, 0].tolist()]
        namespaces = [name.split("/")[0] for name in classes]
        names = (
            f'"pods":{_texts([uid for uid, _ in named])},"namespaces":{_texts(namespaces)},'
            f'"names":{_texts([name for _, name in named])},"workloads":{_texts(classes)},'
            f'"containers":{[1] * len(pods)},'
        )
        zero = [0.0] * len(pods)
        zeros = f'"memory_pressure":{zero},"io_pressure":{zero},"throttled":{zero},'
        listed = self._lists[node] = _Listed(key, names.encode(), zeros.encode())
        return listed

    def _events(self, number: int, change: Change) -> Iterator[Timed]:
        own = self._fleet
        node, phase = change.node, int(own.phase_us[change.node])
        pair: tuple[tuple[str, float], ...] = (("created", 0.0), ("started", _STARTS_SECONDS))
        if not change.arrived:
            pair = (("exited", 0.0), ("deleted", _DELETED_SECONDS))
        uid, name = self._named(node, change.workload, change.serial)
        workload = fleet.CLASSES[change.workload]
        for event, after in pair:
            offset_us = round((number + change.at + after) * 1e6)
            boottime_us = int(own.uptime[node]) * _SECOND_US + offset_us
            message = ContainerEvent.model_validate(
                {
                    "node": own.name[node],
                    "boot": self.boot[node],
                    "at_us": self.start_us + phase + offset_us,
                    "boottime_us": boottime_us,
                    "event": event,
                    "container": uid.replace("-", ""),
                    "sources": ["cgroup"],
                    "container_name": workload.split("/")[1],
                    "image": f"registry.example/{workload}:1",
                    "sandbox": False,
                    "pod": uid,
                    "namespace": workload.split("/")[0],
                    "name": name,
                    "workload": workload,
                }
            )
            identity = f"{boottime_us}:{message.container}:{event}".encode()
            yield Timed(phase + offset_us, "containers", node, 0, b"", codec.encode(message), identity)

    def _pod_facts(self, number: int, change: Change) -> Timed:
        own, work = self._fleet, self._cluster.workloads
        due_us = round((number + change.at) * 1e6) + int(own.phase_us[change.node])
        at_us = self.start_us + due_us
        uid, name = self._named(change.node, change.workload, change.serial)
        workload = fleet.CLASSES[change.workload]
        facts = PodFacts(
            node=own.name[change.node],
            pod=uid,
            namespace=workload.split("/")[0],
            name=name,
            version=at_us,
            at_us=at_us,
            deleted=not change.arrived,
            phase="Running" if change.arrived else "Succeeded",
            created_us=at_us,
            scheduled_us=at_us,
            requests={
                "cpu": round(1.5 * float(work.cores[change.workload]), 3),
                "memory": 1.2 * float(work.memory[change.workload]),
            },
            limits={},
            labels={"app": workload.split("/")[1]},
            annotations={},
            owner_kind="Deployment",
            owner=workload.split("/")[1],
            workload=workload,
            qos="Burstable",
        )
        return Timed(due_us, "podfacts", change.node, 0, b"", codec.encode(facts), f"{uid}:{at_us}".encode())

    def _node_facts(self, node: int) -> NodeFacts:
        own = self._fleet
        amounts = {"cpu": float(own.cores[node]), "memory": float(own.memory[node]), "pods": float(_MAX_PODS)}
        return NodeFacts(
            node=own.name[node],
            uid=self.boot[node],
            version=self.start_us,
            at_us=self.start_us,
            created_us=self.start_us,
            ready=True,
            unschedulable=False,
            allocatable=amounts,
            capacity=amounts,
            labels={"kubernetes.io/hostname": own.name[node], "topology.kubernetes.io/zone": f"zone-{node % 3}"},
            annotations={},
            taints=[],
            zone=f"zone-{node % 3}",
            type=f"sim-{own.cores[node]}x{own.memory[node] >> 30}",
        )

    def _named(self, node: int, workload: int, serial: int) -> tuple[str, str]:
        """Return UID and name of a pod."""
        named = self._names.get((node, serial))
        if named is None:
            name = f"{fleet.CLASSES[workload].split('/')[1]}-{node}-{serial}"
            named = self._names[node, serial] = f"{node:08x}-0000-4000-8000-{serial:012x}", name
        return named

    def _due(self, number: int) -> list[int]:
        due: list[int] = (self._fleet.phase_us + number * _SECOND_US).tolist()
        return due

    def _seqs(self, number: int) -> list[int]:
        seqs: list[int] = (self._fleet.uptime + number).tolist()
        return seqs


def _texts(values: list[str]) -> str:
    """Return a JSON list of texts that need no escapes."""
    return '["' + '","'.join(values) + '"]' if values else "[]"
