"""Messages about what is to come, each with all of its fields."""

from typing import Any

from schemas.messages.prediction import (
    Accuracy,
    Forecast,
    ForecastAccuracy,
    Prediction,
    Reject,
    Resources,
    Subspace,
    WorkloadSums,
)

_AMOUNT = Resources(cpu=1.5, memory=2e9)
_LESS = Resources(cpu=0.5, memory=1e9)


def prediction(**changed: Any) -> Prediction:
    """Return a prediction."""
    fields: dict[str, Any] = {
        "node": "n1",
        "at_us": 4,
        "horizon_seconds": 3600.0,
        "model": "max",
        "peak": _AMOUNT,
        "violation": 0.05,
        "assumed": ["memory"],
        "peaks": {"node": {"max": _AMOUNT, "borg_default": _LESS}, "prod": {"max": _LESS}},
        "capacity": _AMOUNT,
        "requested": _AMOUNT,
        "unpredicted": _LESS,
        "reclaimable": _LESS,
        "formula": "mixed",
        "mid": {"mixed": _LESS, "shipped": _AMOUNT},
        "batch": _LESS,
        "accuracy": {"max": Accuracy(violations=0.25, severity=0.1, savings=0.3, settled=4.5)},
        "windows": 7,
        "reason": "change",
    }
    return Prediction(**fields | changed)


def reject(**changed: Any) -> Reject:
    """Return a reject signal."""
    fields: dict[str, Any] = {
        "node": "n1",
        "at_us": 4,
        "seq": 3,
        "reject": True,
        "score": 0.75,
        "threshold": 0.5,
        "rank": 2,
        "spikes": [1, -1],
        "weights": [0.75, 0.25],
        "since_us": 4,
        "subspace": "global",
    }
    return Reject(**fields | changed)


def subspace(**changed: Any) -> Subspace:
    """Return two directions of two metrics."""
    fields: dict[str, Any] = {
        "scope": "partition",
        "partition": 3,
        "at_us": 4,
        "metrics": ["cpu_util", "memory_util"],
        "sigma": [2.0, 0.5],
        "basis": [0.6, 0.8, -0.8, 0.6],
        "nodes": 7,
    }
    return Subspace(**fields | changed)


def sums(**changed: Any) -> WorkloadSums:
    """Return the sums of one workload."""
    fields: dict[str, Any] = {
        "partition": 3,
        "at_us": 4,
        "chunk": 0,
        "namespaces": ["s"],
        "kinds": ["Deployment"],
        "workloads": ["w"],
        "pods": [2],
        "ready": [1],
        "cpu": [0.5],
        "memory": [1e6],
        "requested_cpu": [1.0],
        "requested_memory": [2e6],
        "initialized": [1],
        "initialization_seconds": [12.5],
        "nodes": [2],
        "measured": [2],
        "greatest_cpu": [0.4],
        "greatest_cpu_pods": [1],
        "greatest_memory": [6e5],
        "greatest_memory_pods": [1],
    }
    return WorkloadSums(**fields | changed)


def forecast(**changed: Any) -> Forecast:
    """Return a forecast."""
    fields: dict[str, Any] = {
        "namespace": "s",
        "kind": "Deployment",
        "workload": "w",
        "at_us": 4,
        "pods": 2,
        "ready": 1,
        "initialization_seconds": 12.5,
        "horizon_seconds": 12.5,
        "observations": 4,
        "requested": _AMOUNT,
        "current": _LESS,
        "model": "linear",
        "forecast": _AMOUNT,
        "forecasts": {"linear": _AMOUNT, "last": _LESS},
        "target": 0.8,
        "desired": 2,
        "raises": True,
        "accuracy": {"linear": ForecastAccuracy(violations=0.25, severity=0.1, overprovision=0.2, settled=4.5)},
    }
    return Forecast(**fields | changed)
