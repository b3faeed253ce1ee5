"""What agents and a cluster watch would say of the simulated cluster: messages of the contract, second by second."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from producers.simulated import sample
from schemas import codec, metric
from schemas.messages.base import Message
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, SampleBlock
from schemas.subject import Names
from spazio.simulation.cluster import RUNNING, TICKS, Cluster, Shown
from spazio.simulation.scenario import Scenario

START_US = 1_767_225_600_000_000  # the moment at which every simulation begins: 1 January 2026
_SECOND_US = 1_000_000
_UPTIME = 10_000  # seconds that nodes have been up at the beginning
_NAMESPACE = "simulated"

Telemetry = tuple[str, bytes]
Event = Literal["started", "exited"]
Change = tuple[int, Event, float]


def at_us(now: float) -> int:
    """Return a virtual time in microseconds since the epoch."""
    return START_US + round(now * 1e6)


class Voice:
    """Speaks for all nodes of one run.

    Attributes:
        nodes: Names of the nodes.
    """

    def __init__(self, scenario: Scenario, cluster: Cluster, *, requests: bool) -> None:
        """Prepare what does not change; without `requests`, no pod states any, those of the system neither."""
        self._scenario, self._cluster, self._names = scenario, cluster, Names()
        self.nodes = [f"node-{number:04d}" for number in range(len(cluster.cpus))]
        self._group = [group for group in scenario.nodes for _ in range(group.count)]
        self._load1 = np.zeros(len(self.nodes))
        self._by_requests = requests
        self._requests = [group.requests if requests else {} for group in scenario.pods]
        own = cluster.population
        self.pods = [
            f"{scenario.pods[group].name}-{serial}"
            for group, serial in zip(own.group.tolist(), own.serial.tolist(), strict=True)
        ]
        self.uids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(len(self.pods))]

    def describe(self) -> Iterator[NodeFacts]:
        """Yield the API's facts of all nodes."""
        for node, group in zip(self.nodes, self._group, strict=True):
            capacity = {"cpu": float(group.cpus), "memory": group.memory, "pods": float(group.pods)}
            cpu, memory = group.reserved_cpu, group.reserved_memory
            if self._by_requests:
                cpu, memory = cpu + group.requested_cpu, memory + group.requested_memory
            reserved = {"cpu": cpu, "memory": memory, "pods": 0.0}
            yield NodeFacts(
                node=node,
                uid=node,
                version=1,
                at_us=START_US,
                created_us=START_US,
                ready=True,
                unschedulable=False,
                allocatable={name: amount - reserved[name] for name, amount in capacity.items()},
                capacity=capacity,
                labels={"kubernetes.io/hostname": node},
                annotations={},
                taints=[],
            )

    def facts(self, pod: int, now: float, *, deleted: bool = False) -> PodFacts:
        """Return the API's facts of a pod as it is now."""
        cluster, group = self._cluster, self._scenario.pods[cluster_group(self._cluster, pod)]
        running = cluster.state[pod] == RUNNING
        node, bound = int(cluster.node[pod]), at_us(float(np.nan_to_num(cluster.bound[pod])))
        return PodFacts(
            node=UNBOUND if node < 0 else self.nodes[node],
            pod=self.uids[pod],
            namespace=_NAMESPACE,
            name=self.pods[pod],
            version=at_us(now) - START_US + 2,
            at_us=at_us(now),
            deleted=deleted,
            phase="Succeeded" if deleted else "Running" if running else "Pending",
            created_us=at_us(float(cluster.population.created[pod])),
            scheduled_us=None if node < 0 else bound,
            ready_us=at_us(float(cluster.began[pod])) if running else None,
            requests=self._requests[cluster_group(cluster, pod)],
            limits={},
            labels={"spazio.class": group.name},
            annotations={},
            workload=group.name,
        )

    def object(self, pod: int) -> dict[str, object]:
        """Return a pod as kube-scheduler sends it to an extender."""
        group = self._scenario.pods[cluster_group(self._cluster, pod)]
        metadata = {
            "uid": self.uids[pod],
            "namespace": _NAMESPACE,
            "name": self.pods[pod],
            "labels": {"spazio.class": group.name},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        stated = self._requests[cluster_group(self._cluster, pod)]
        requests = {name: str(amount) for name, amount in stated.items()}  # exact: pods may fill a node to the byte
        return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}

    def second(self, number: int, ticks: Sequence[Shown], changes: Sequence[Change]) -> list[Telemetry]:
        """Return the messages of one second.

        Args:
            number: Which second.
            ticks: What the nodes showed.
            changes: Containers that began or ended within it: pod, event, time.
        """
        messages = [self._say("containers", self._event(*change)) for change in changes]
        return messages + list(self._samples(number, ticks)) + list(self._usage(number, ticks))

    def _say(self, kind: str, message: Message) -> Telemetry:
        return self._names.part(0, kind, getattr(message, "node", "")), codec.encode(message)

    def _samples(self, number: int, ticks: Sequence[Shown]) -> Iterator[Telemetry]:
        cluster = self._cluster
        used, runnable, memory = (np.column_stack([getattr(tick, name) for tick in ticks]) for name in Shown._fields)
        cpus = cluster.cpus[:, None]
        share = memory / cluster.memory[:, None]
        self._load1 += (runnable.mean(axis=1) - self._load1) / 60.0
        pods = np.broadcast_to(self._running()[:, None].astype(np.float64), used.shape)
        zeros = np.zeros(used.shape)
        waited = np.clip(runnable - cpus, 0.0, cpus) / cpus
        listed = runnable + 1.0  # the kernel counts the thread that reads it
        shown = sample.shown(used / cpus, share, zeros, zeros, listed, self._load1, pods, waited)
        values = np.round(shown.reshape(len(self.nodes), -1), 4).tolist()
        for node in np.flatnonzero(cluster.alive).tolist():
            block = SampleBlock.model_construct(
                node=self.nodes[node],
                boot=_boot(node),
                seq=_UPTIME + number,
                at_us=START_US + number * _SECOND_US,
                step_us=_SECOND_US // TICKS,
                cpus=int(cluster.cpus[node]),
                memory_bytes=int(cluster.memory[node]),
                metrics=list(metric.NAMES),
                values=values[node],
            )
            yield self._say("samples", block)

    def _usage(self, number: int, ticks: Sequence[Shown]) -> Iterator[Telemetry]:
        cluster, own = self._cluster, self._cluster.population
        cores = cluster.used_cores.copy()
        cluster.used_cores[:] = 0.0
        running = np.flatnonzero(cluster.state == RUNNING)
        running = running[np.argsort(cluster.node[running], kind="stable")]
        bounds = np.searchsorted(cluster.node[running], np.arange(len(self.nodes) + 1)).tolist()
        waited = np.round(np.minimum(cluster.waited[running], 1.0), 4)
        cluster.waited[:] = 0.0
        ages = np.clip(number + 1 - cluster.began[running], 0, 600).astype(np.int64)
        of_pods = np.zeros(len(self.nodes))
        np.add.at(of_pods, cluster.node[running], own.memory[running])
        system = np.maximum(np.mean([tick.memory for tick in ticks], axis=0) - of_pods, 0.0)
        for node in np.flatnonzero(cluster.alive).tolist():
            of = slice(bounds[node], bounds[node + 1])
            pods = running[of].tolist()
            classes = [self._scenario.pods[group].name for group in own.group[running[of]].tolist()]
            zeros: list[float | None] = [0.0] * len(pods)
            block = PodUsageBlock.model_construct(
                node=self.nodes[node],
                boot=_boot(node),
                seq=_UPTIME + number + 1,
                at_us=START_US + (number + 1) * _SECOND_US,
                span_us=_SECOND_US,
                system_cpu_cores=self._group[node].system_cpu,
                system_memory_bytes=float(round(system[node])),
                pods=[self.uids[pod] for pod in pods],
                namespaces=[_NAMESPACE] * len(pods),
                names=[self.pods[pod] for pod in pods],
                workloads=classes,
                containers=[1] * len(pods),
                cpu_cores=np.round(cores[running[of]], 4).tolist(),
                memory_bytes=np.round(own.memory[running[of]]).tolist(),
                cpu_pressure=waited[of].tolist(),
                memory_pressure=zeros,
                io_pressure=zeros,
                throttled=zeros,
                ages=ages[of].tolist(),
            )
            yield self._say("pods", block)

    def _event(self, pod: int, event: Event, now: float) -> ContainerEvent:
        cluster = self._cluster
        node = int(cluster.node[pod])
        return ContainerEvent(
            node=self.nodes[node],
            boot=_boot(node),
            at_us=at_us(now),
            boottime_us=_UPTIME * _SECOND_US + round(now * 1e6),
            event=event,
            container=self.uids[pod].replace("-", ""),
            sources=["cgroup"],
            container_name="main",
            sandbox=False,
            pod=self.uids[pod],
            namespace=_NAMESPACE,
            name=self.pods[pod],
            workload=self._scenario.pods[cluster_group(cluster, pod)].name,
        )

    def _running(self) -> NDArray[np.int64]:
        cluster = self._cluster
        return np.bincount(cluster.node[cluster.state == RUNNING], minlength=len(self.nodes))


def cluster_group(cluster: Cluster, pod: int) -> int:
    """Return the index of a pod's group."""
    return int(cluster.population.group[pod])


def _boot(node: int) -> str:
    return f"{node:08x}-0000-4000-8000-000000000000"
