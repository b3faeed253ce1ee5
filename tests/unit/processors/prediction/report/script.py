"""A node and its pods over some windows, and what predictions say of them."""

import math
from typing import Any, NamedTuple

import numpy as np

from processors.prediction.fold import PredictionPartition
from schemas.messages.prediction import Prediction
from tests.support.processors import telemetry
from tests.support.processors.telemetry import METRICS, START, block, stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, Stream, configured, node_facts, predictions

DAY_US = 86_400 * 1_000_000
GIB = float(1 << 30)
CORES, MEMORY = 4.0, 8 * GIB
ALLOCATABLE = (3.5, 7.5 * GIB)
WINDOWS, SECONDS = 5, 30


class PodFixture(NamedTuple):
    """A pod as the script has it: its group, what it asks for, and whether it is young, ends, or owns its cores."""

    group: str
    request: tuple[float, float]
    priority: int | None
    cold: bool = False
    ending: bool = False
    exclusive: bool = False


PODS = {
    "warm": PodFixture("prod", (2.0, 2 * GIB), 9500),
    "cold": PodFixture("prod", (0.5, 1 * GIB), 9000, cold=True),
    "ending": PodFixture("prod", (0.4, 0.5 * GIB), 9999, ending=True),
    "own": PodFixture("prod", (0.6, 0.25 * GIB), 9100, exclusive=True),
    "plain": PodFixture("none", (0.3, 0.5 * GIB), None),
    "middle": PodFixture("mid", (0.2, 0.25 * GIB), 7000),
    "lot": PodFixture("batch", (1.0, 1 * GIB), 5500),
}


def used() -> tuple[np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    """Return usage of the node and of each pod, (seconds, resources)."""
    random = np.random.default_rng(4)
    length = WINDOWS * SECONDS
    pods = {
        name: np.stack([random.uniform(0, messages.request[0] / 2, length), random.uniform(1e8, 4e8, length)], axis=1)
        for name, messages in PODS.items()
    }
    outside = np.stack([random.uniform(0.1, 0.3, length), random.uniform(5e8, 6e8, length)], axis=1)
    return sum(pods.values(), outside), pods


def script() -> Stream:
    """Return the windows second by second, and the one block that ends the last."""
    node, pods = used()
    messages = [stored(node_facts("n", 1, *ALLOCATABLE))]
    for name, reports in PODS.items():
        fields = {
            "requests": dict(zip(("cpu", "memory"), reports.request, strict=True)),
            "priority": reports.priority,
            "terminating": reports.ending,
            "labels": {"koordinator.sh/qosClass": "LSE"} if reports.exclusive else {},
            "created_us": START * 1_000_000 - (0 if reports.cold else 2 * DAY_US),
        }
        messages.append(stored(telemetry.facts("n", name, f"shop/{name}", 1, **fields)))
    for second in range(WINDOWS * SECONDS + 1):
        share = node[min(second, len(node) - 1)] / (CORES, MEMORY)
        made = block("n", BEGIN + second)
        values = np.zeros((10, len(METRICS)))
        values[:, [METRICS.index("cpu_util"), METRICS.index("memory_util")]] = share
        messages.append(stored(made.model_copy(update={"values": values.ravel().tolist()})))
        if second < WINDOWS * SECONDS:
            columns = [
                {"pod": name, "cpu_cores": float(each[second, 0]), "memory_bytes": float(each[second, 1])}
                for name, each in pods.items()
            ]
            messages.append(stored(telemetry.usage("n", BEGIN + second + 1, columns)))
    return messages


def last(**flags: str) -> Prediction:
    return predictions(PredictionPartition(configured(predict_force_seconds="1", **flags), 0).fold(script()))[-1]


def wavering(seconds: int, jitter_us: int = 0, swing: float = 0.001) -> Stream:
    """Return a node whose usage changes a little with every window."""
    random = np.random.default_rng(3)
    messages: Stream = []
    for second in range(seconds):
        wave = swing * math.sin(second // 30)
        made = block("n", BEGIN + second, cpu_util=0.25 + wave, memory_util=0.5 + wave)
        at_us = made.at_us + int(random.integers(0, jitter_us + 1))
        messages.append(stored(made.model_copy(update={"at_us": at_us})))
    return messages
