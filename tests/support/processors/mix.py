"""A node of 16 cores and 64 GB that runs pods of several workload classes, as messages."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from processors.estimation import slowdown
from processors.partition.output import Output
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Model
from schemas.settings import Settings, load
from tests.support.processors.telemetry import METRICS, block, stored, usage

CORES, MEMORY = 16, 64e9
ALLOWED = slowdown.share(2.0, CORES) * CORES  # cores that serving pods may demand
FREE_MEMORY = MEMORY - (100 << 20)  # above the eviction threshold


def share_of(cores: float) -> float:
    """Return the share of what serving pods may demand that one of so many cores takes."""
    every = slowdown.queueing(2.0, np.array([float(CORES)]))
    return float(cores * slowdown.weight(np.array([cores]), every)[0] / ALLOWED)


def configured(**flags: str) -> Settings:
    return load({"model_global_weight": "0", "estimate_report_seconds": "0.5", **flags}, environ={})


def rows_of(outputs: Iterable[Output]) -> list[Availability]:
    return [output.message for output in outputs if isinstance(output.message, Availability)]


def sums_of(outputs: Iterable[Output]) -> list[Model]:
    return [output.message for output in outputs if isinstance(output.message, Model)]


def pod(name: str, workload: str | None, cores: float | None, memory: float | None, **more: Any) -> dict[str, Any]:
    return {"pod": name, "workloads": workload, "cpu_cores": cores, "memory_bytes": memory, **more}


def sampled(node: str, second: int, cores: float, memory: float, pods: int, *, noise: Any = 0.0) -> Message:
    """Return a block of a node of 16 cores on which so many cores are wanted."""
    values = np.zeros((10, len(METRICS)))
    wanted = cores / CORES + noise
    values[:, METRICS.index("cpu_util")] = np.clip(wanted, 0, 1)
    values[:, METRICS.index("cpu_pressure")] = np.clip(wanted - 1, 0, 1)
    values[:, METRICS.index("memory_util")] = memory / MEMORY
    values[:, METRICS.index("pods")] = pods
    flat = np.round(values, 4).ravel().tolist()
    return block(node, second).model_copy(update={"values": flat, "cpus": CORES, "memory_bytes": int(MEMORY)})


def steady(
    seconds: Iterable[int], running: dict[str, int], node: str = "n", cost: tuple[float, float] = (0.5, 1e9)
) -> list[tuple[str, bytes]]:
    """Return blocks of a node that runs so many pods of each class."""
    messages = []
    listed = [pod(f"{name}-{number}", name, *cost) for name, count in running.items() for number in range(count)]
    for second in seconds:
        cores, memory = 1 + cost[0] * len(listed), 2e9 + cost[1] * len(listed)
        messages += [
            stored(sampled(node, second, cores, memory, len(listed))),
            stored(usage(node, second + 1, listed)),
        ]
    return messages
