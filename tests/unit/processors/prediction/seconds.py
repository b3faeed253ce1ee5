"""Seconds of a node with pods, for predictions of its pods."""

from typing import Any

from processors.prediction.fold import PredictionPartition
from schemas.messages.base import Message
from schemas.messages.prediction import Prediction
from tests.support.processors import telemetry
from tests.support.processors.telemetry import START, block, stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, Stream, configured, predictions

SETTINGS = {"predict_cold_start_seconds": "60", "predict_force_seconds": "1", "predict_model": "n_sigma"}


def facts(pod: str, second: int, workload: str = "shop/web", *, node: str = "n", **fields: Any) -> tuple[str, bytes]:
    """Return a prod pod that asks for a core, created in a second."""
    made = {
        "requests": {"cpu": 1.0, "memory": 1e9},
        "priority": 9500,
        "created_us": (START + BEGIN + second) * 1_000_000,
        "at_us": (START + BEGIN + second) * 1_000_000,
        **fields,
    }
    return stored(telemetry.facts(node, pod, workload, max(1 + second, 0), **made))


def second_of(
    second: int, pods: list[str], *, node: str = "n", behind: int = 0, cpu: float = 0.5, **fields: Any
) -> Stream:
    """Return a second of a node on which some pods run."""
    at, used = BEGIN + second - behind, {"cpu_cores": 0.25, "memory_bytes": 5e8, **fields}
    own: list[Message] = [block(node, at, seq=second, cpu_util=cpu, memory_util=0.5)]
    own.append(telemetry.usage(node, at + 1, [{"pod": pod, **used} for pod in pods], seq=second))
    return [stored(each) for each in own]


def by_second(messages: Stream, node: str = "n", **flags: str) -> dict[int, Prediction]:
    """Return what is published of a node, by second."""
    predicted = predictions(PredictionPartition(configured(**SETTINGS | flags), 0).fold(messages))
    return {each.at_us // 1_000_000 - START - BEGIN: each for each in predicted if each.node == node}
