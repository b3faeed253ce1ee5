"""Telemetry for tests: seeded, with pods that come and go, and as agent and cluster watch would send it."""

from typing import Any

import numpy as np

from schemas import codec, metric
from schemas.messages.base import Message
from schemas.messages.facts import PodFacts
from schemas.messages.telemetry import POD_COLUMNS, ContainerEvent, PodUsageBlock, SampleBlock
from schemas.subject import Names

METRICS = list(metric.NAMES)
START = 1_700_000_000
NAMES = Names()


def block(
    node: str, second: int, *, samples: int = 10, seq: int | None = None, **constant: float | None
) -> SampleBlock:
    """Return one block; metrics that are not named are 0."""
    row = [constant.get(name, 0.0) for name in METRICS]
    return SampleBlock(
        node=node,
        boot="boot",
        seq=1000 + second if seq is None else seq,
        at_us=(START + second) * 1_000_000,
        step_us=1_000_000 // samples,
        cpus=4,
        memory_bytes=8 << 30,
        metrics=METRICS,
        values=row * samples,
    )


def noisy(node: str, second: int, pods: int, random: np.random.Generator) -> SampleBlock:
    """Return a block of a node on which each pod takes 8 % of CPU utilisation and 3 % of memory."""
    made = block(node, second, pods=float(pods))
    values = np.zeros((10, len(METRICS)))
    values[:, METRICS.index("cpu_util")] = np.clip(0.05 + 0.08 * pods + random.normal(0, 0.01, 10), 0, 1)
    values[:, METRICS.index("cpu_pressure")] = np.clip(random.normal(0, 0.005, 10), 0, 1)
    values[:, METRICS.index("memory_util")] = np.clip(0.2 + 0.03 * pods + random.normal(0, 0.001, 10), 0, 1)
    values[:, METRICS.index("memory_used")] = values[:, METRICS.index("memory_util")]
    values[:, METRICS.index("pods")] = pods
    return made.model_copy(update={"values": np.round(values, 4).ravel().tolist()})


def event(node: str, second: float, kind: str = "created", **fields: Any) -> ContainerEvent:
    """Return an event of a container; seconds count as those of blocks do."""
    return ContainerEvent.model_validate(
        {
            "node": node,
            "boot": "boot",
            "at_us": round((START + second) * 1e6),
            "boottime_us": round((1000 + second) * 1e6),
            "event": kind,
            "container": "c",
            "sources": ["cgroup"],
            **fields,
        }
    )


def usage(node: str, second: int, pods: list[dict[str, Any]], **fields: Any) -> PodUsageBlock:
    """Return what pods used over the second before `second`; columns that a pod does not name are null."""
    columns = {name: [pod.get(name) for pod in pods] for name in POD_COLUMNS}
    columns["containers"] = [pod.get("containers", 1) for pod in pods]
    return PodUsageBlock.model_validate(
        {
            "node": node,
            "boot": "boot",
            "seq": 1000 + second,
            "at_us": (START + second) * 1_000_000,
            "span_us": 1_000_000,
            "pods": [pod["pod"] for pod in pods],
            **columns,
            **fields,
        }
    )


def facts(node: str, pod: str, workload: str, version: int = 1, **fields: Any) -> PodFacts:
    """Return what Kubernetes says of a pod."""
    return PodFacts.model_validate(
        {
            "node": node,
            "pod": pod,
            "namespace": "shop",
            "name": pod,
            "version": version,
            "at_us": START * 1_000_000,
            "phase": "Running",
            "created_us": START * 1_000_000,
            "requests": {},
            "limits": {},
            "labels": {},
            "annotations": {},
            "workload": workload,
            **fields,
        }
    )


def stored(message: Message, partition: int = 0) -> tuple[str, bytes]:
    """Return (subject as stored, payload)."""
    kind = next(kind for kind, given in codec.MESSAGES.items() if isinstance(message, given))
    node = NAMES.node(kind, getattr(message, "node")).rsplit(".", 1)[-1]  # noqa: B009 # not every message has one
    return NAMES.part(partition, kind, node), codec.encode(message)


def recording(nodes: int = 5, seconds: int = 12, seed: int = 1) -> list[tuple[str, bytes]]:
    """Return a recorded stream of several nodes, in stream order, some of them late, silent or repeated."""
    random = np.random.default_rng(seed)
    messages: list[tuple[str, bytes]] = []
    pods = random.integers(0, 4, nodes)
    for second in range(seconds):
        for index in random.permutation(nodes):
            if random.random() < 0.1:
                continue
            pods[index] = max(0, pods[index] + random.choice([-1, 0, 0, 0, 1]))
            node = f"node-{index}"
            message = stored(noisy(node, second, int(pods[index]), random))
            messages += [message] * (2 if random.random() < 0.1 else 1)
            messages += _beside(node, second, int(pods[index]), random)
    return messages


def _beside(node: str, second: int, pods: int, random: np.random.Generator) -> list[tuple[str, bytes]]:
    """Return events, pod usage and facts that come at about the time of a block, in any order, some of them twice."""
    listed = [
        {
            "pod": f"{node}-{number}",
            "workloads": f"shop/{'abcdefghijkl'[(number + second // 5) % 12]}",
            "cpu_cores": float(random.uniform(0, 0.5)),
            "memory_bytes": float(random.uniform(1e7, 1e8)),
            "cpu_pressure": float(random.uniform(0, 0.2)) if random.random() < 0.9 else None,
        }
        for number in range(3 * pods)
    ]
    result: list[Message] = [usage(node, second + 1, listed)]
    if random.random() < 0.15:
        result.append(event(node, second + float(random.uniform(-2, 2)), str(random.choice(["created", "exited"]))))
    if random.random() < 0.3:
        pod = f"{node}-{random.integers(0, 6)}"
        result.append(facts(node, pod, f"shop/{random.choice(list('mno'))}", second, deleted=random.random() < 0.3))
    chosen = [result[index] for index in random.permutation(len(result))]
    return [stored(message) for message in chosen for _ in range(2 if random.random() < 0.1 else 1)]
