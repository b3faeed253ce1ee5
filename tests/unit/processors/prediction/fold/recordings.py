"""A recording of all that predictions depend on, and folds over it."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from processors.partition.output import Output
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.prediction import Prediction
from schemas.messages.telemetry import PodUsageBlock, SampleBlock
from schemas.settings import Settings, load
from tests.support.processors import telemetry
from tests.support.processors.telemetry import START, block, stored

BEGIN = 40  # START + BEGIN is a whole minute
Stream = list[tuple[str, bytes]]
# Windows of five seconds, so that half a minute of telemetry shows what else takes hours.
FAST = {
    "predict_update_seconds": "5",
    "predict_check_seconds": "3",
    "predict_report_seconds": "6",
    "predict_force_seconds": "20",
    "predict_horizon_seconds": "20",
    "predict_cold_start_seconds": "15",
    "predict_expiration_seconds": "20",
}


def configured(**flags: str) -> Settings:
    """Return settings; pods need no ten minutes of evidence and what is lent rises at once, so streams may be short."""
    return load({"predict_evidence_seconds": "0", "predict_mid_rise": "3600", **flags}, environ={})


def lines(outputs: Sequence[Output]) -> list[tuple[str, bytes]]:
    return [(output.subject, codec.encode(output.message)) for output in outputs]


def predictions(outputs: Sequence[Output]) -> list[Prediction]:
    return [output.message for output in outputs if isinstance(output.message, Prediction)]


def of(node: str, outputs: Sequence[Output]) -> list[tuple[str, bytes]]:
    return [line for line in lines(outputs) if line[0].endswith(f".{node}")]


def node_facts(node: str, version: int, cpu: float, memory: float, **fields: Any) -> NodeFacts:
    return NodeFacts.model_validate(
        {
            "node": node,
            "uid": node,
            "version": version,
            "at_us": START * 1_000_000,
            "created_us": START * 1_000_000,
            "ready": True,
            "unschedulable": False,
            "allocatable": {"cpu": cpu, "memory": memory},
            "capacity": {},
            "labels": {},
            "annotations": {},
            "taints": [],
            **fields,
        }
    )


def calm(node: str, seconds: Sequence[int], cpu: float = 0.25, **fields: Any) -> Stream:
    """Return a node that always uses the same, and has one pod that uses a core of it."""
    messages: Stream = []
    for second in seconds:
        messages.append(stored(block(node, BEGIN + second, cpu_util=cpu, memory_util=0.5, **fields)))
        pod = {"pod": f"{node}-pod", "cpu_cores": 0.5, "memory_bytes": 1e9}
        messages.append(stored(telemetry.usage(node, BEGIN + second + 1, [pod])))
    return messages


@functools.cache
def recording(seed: int, pace: int, steps: int = 60) -> Stream:
    """Return a stream of four nodes in which everything happens that may: see the names of what is called."""
    random = np.random.default_rng(seed)
    messages: Stream = []
    pods = random.integers(0, 4, 4)
    for step in range(steps):
        second = BEGIN + step * pace
        for index in random.permutation(4).tolist():
            node = f"node-{index}"
            if random.random() < 0.1 or (index == 3 and steps // 8 < step < steps * 7 // 8):
                continue  # one is silent for most of the time and comes back
            pods[index] = max(0, pods[index] + random.choice([-1, 0, 0, 0, 1]))
            own: list[Message] = [_facts(node, second, random)] if random.random() < 0.4 else []
            own += [_block(node, index, step, second, random), _usage(node, second, int(pods[index]), random)]
            for number in random.permutation(len(own)).tolist():
                messages += [stored(own[number])] * (2 if random.random() < 0.1 else 1)
            if random.random() < 0.05:
                messages.append(messages[random.integers(len(messages))])
    return messages


def _block(node: str, index: int, step: int, second: int, random: np.random.Generator) -> SampleBlock:
    made = telemetry.noisy(node, second, int(random.integers(0, 8)), random)
    ahead = 5000 if index == 1 and 20 <= step < 24 else 0
    boot = "another boot" if index == 2 and step >= 30 else "boot"
    cpus = 8 if index == 0 and step >= 40 else 4
    at_us = made.at_us + ahead * 1_000_000 + int(random.integers(0, 200_000))
    return made.model_copy(update={"at_us": at_us, "boot": boot, "cpus": cpus})


def _usage(node: str, second: int, pods: int, random: np.random.Generator) -> PodUsageBlock:
    listed = [
        {
            "pod": f"{node}-{number}",
            "workloads": f"shop/{'abc'[number % 3]}",
            "containers": int(random.random() < 0.95),
            "cpu_cores": float(random.uniform(0, 0.5)) if random.random() < 0.95 else None,
            "memory_bytes": float(random.uniform(1e7, 1e8)),
        }
        for number in range(2 * pods)
    ]
    return telemetry.usage(node, second + 1, listed)


def _facts(node: str, second: int, random: np.random.Generator) -> NodeFacts | PodFacts:
    if random.random() < 0.2:
        return node_facts(node, second, float(random.uniform(3, 4)), 7e9, deleted=bool(random.random() < 0.2))
    pod = f"{node}-{random.integers(0, 6)}"
    fields = {
        "requests": {"cpu": float(random.uniform(0, 2)), "memory": float(random.uniform(0, 1e9))},
        "priority": int(random.choice([9500, 7500, 5500, 3500, 0])),
        "labels": {"koordinator.sh/qosClass": "LSE"} if random.random() < 0.2 else {},
        "terminating": bool(random.random() < 0.1),
        "deleted": bool(random.random() < 0.2),
        "created_us": (START + second - int(random.integers(0, 60))) * 1_000_000,
    }
    return telemetry.facts(node, pod, f"shop/{random.choice(list('abc'))}", second, **fields)
