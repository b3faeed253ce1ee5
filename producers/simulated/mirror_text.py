"""Messages of nodes whose pods are followed: blocks of samples and of pod usage, and events of containers."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.simulated import text
from producers.simulated.machine import SECOND_US, Machine
from producers.simulated.sample import COLUMN
from schemas import codec, metric
from schemas.messages.facts import PodFacts
from schemas.messages.telemetry import MAXIMUM_PODS, OLD_SECONDS, ContainerEvent

Array = NDArray[np.float64]

_STEPS = ((("created", 0), ("started", 20_000)), (("exited", 0), ("deleted", 100_000)))  # and microseconds after
_METRICS = json.dumps(list(metric.NAMES), separators=(",", ":"))


class Published(NamedTuple):
    """A message that is to be published; `identity` is the end of its id, behind the kind."""

    kind: str
    node: str
    payload: bytes
    identity: str


class Usage(NamedTuple):
    """What pods used, (pods,): number of the node, cores, bytes, share of time waited, and age; in order of node."""

    node_index: NDArray[np.intp]
    cores: Array
    memory: Array
    waited: Array
    age: NDArray[np.int64]


def events(node: Machine, facts: PodFacts, step: int) -> Iterator[Published]:
    """Yield the events of a pod's container when the pod begins to run (step 0) and when it has ended (1)."""
    container, boottime_us = facts.pod.replace("-", ""), node.boottime_us(facts.at_us)
    for event, after_us in _STEPS[step]:
        message = ContainerEvent.model_validate(
            {
                "node": node.name,
                "boot": node.boot,
                "at_us": facts.at_us + after_us,
                "boottime_us": boottime_us + after_us,
                "event": event,
                "container": container,
                "sources": ["simulated"],
                "container_name": "main",
                "sandbox": False,
                "pod": facts.pod,
                "namespace": facts.namespace,
                "name": facts.name,
                "workload": facts.workload,
            }
        )
        identity = f"{node.name}:{node.boot}:{boottime_us + after_us}:{container}:{event}"
        yield Published("containers", node.name, codec.encode(message), identity)


def blocks(due: Sequence[Machine], samples: Array, pods: Sequence[PodFacts], usage: Usage) -> Iterator[Published]:
    """Yield both blocks of one second of each node.

    Args:
        due: Nodes, before their second is counted.
        samples: (nodes, samples, metrics).
        pods: Pods at the end of the second, in the order of `usage`.
        usage: What they used.
    """
    bounds = np.searchsorted(usage.node_index, np.arange(len(due) + 1)).tolist()
    cores, memory = np.round(usage.cores, 4), np.floor(usage.memory)
    ages = np.minimum(usage.age, OLD_SECONDS).tolist()
    busy = samples[..., COLUMN["cpu_util"]].mean(axis=1)
    in_use, waited = samples[:, -1, COLUMN["memory_util"]], np.round(usage.waited, 4).tolist()
    for row, (machine, values) in enumerate(zip(due, text.values(samples), strict=True)):
        head = f'{{"v":1,"node":{json.dumps(machine.name)},"boot":"{machine.boot}",'
        seq = machine.seq
        body = (
            f'"seq":{seq},"at_us":{machine.next_us},"step_us":100000,"cpus":{machine.cores},'
            f'"memory_bytes":{machine.memory},"metrics":{_METRICS},"values":['
        )
        payload = b"%b%b%b]}" % (head.encode(), body.encode(), values)
        yield Published("samples", machine.name, payload, f"{machine.name}:{machine.boot}:{seq}")
        of = slice(bounds[row], min(bounds[row + 1], bounds[row] + MAXIMUM_PODS))
        system = (
            max(0.0, float(busy[row] * machine.cores - cores[of].sum())),
            max(0.0, float(np.floor(in_use[row] * machine.memory - memory[of].sum()))),
        )
        columns = _columns(pods[of], cores[of].tolist(), memory[of].tolist(), ages[of], waited[of])
        body = (
            f'"seq":{seq + 1},"at_us":{machine.next_us + SECOND_US},"span_us":1000000,'
            f'"system_cpu_cores":{system[0]:.4f},"system_memory_bytes":{system[1]:.0f},{columns}}}'
        )
        yield Published("pods", machine.name, (head + body).encode(), f"{machine.name}:{machine.boot}:{seq + 1}")


def _columns(
    pods: Sequence[PodFacts], cores: list[float], memory: list[float], ages: list[int], waited: list[float]
) -> str:
    zeros = [0.0] * len(pods)
    columns = {
        "pods": [pod.pod for pod in pods],
        "namespaces": [pod.namespace for pod in pods],
        "names": [pod.name for pod in pods],
        "workloads": [pod.workload for pod in pods],
        "containers": [1] * len(pods),
        "cpu_cores": cores,
        "memory_bytes": memory,
        "cpu_pressure": waited,
        "memory_pressure": zeros,
        "io_pressure": zeros,
        "throttled": zeros,
        "ages": ages,
    }
    return json.dumps(columns, separators=(",", ":"))[1:-1]
