"""A good message of each kind, and how it is refused once it is damaged."""

import json
from typing import Any

import pytest

from schemas import codec
from schemas.codec import MESSAGES, Refused

BLOCK: dict[str, Any] = {
    "v": 1, "node": "n1", "boot": "b", "seq": 7, "at_us": 1_700_000_000_000_000, "step_us": 500_000,
    "metrics": ["cpu_util", "pods"], "values": [0.25, None, 1, 3.0],
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "samples": BLOCK | {"cpus": 4, "memory_bytes": 1 << 33},
    "smoothed": BLOCK,
    "containers": {
        "v": 1, "node": "a.b", "boot": "b", "at_us": 1, "boottime_us": 2, "event": "exited",
        "container": "c", "sources": ["docker", "cgroup"], "pod": "p",
    },
    "pods": {
        "v": 1, "node": "a", "boot": "b", "seq": 3, "at_us": 4, "span_us": 1_000_000, "system_cpu_cores": 0.25,
        "pods": ["u"], "namespaces": [None], "names": ["n"], "workloads": ["w"], "containers": [1], "cpu_cores": [0.5],
        "memory_bytes": [1e6], "cpu_pressure": [None], "memory_pressure": [0.0], "io_pressure": [1.0],
        "throttled": [0.5],
    },
    "edge": {
        "v": 1, "node": "a.b", "boot": "b", "seq": 3, "at_us": 4, "step_us": 200_000,
        "usage": [0.5, None, 0], "pods": 2, "waiting": 0.25,
        "size": {"cpus": 4, "memory_bytes": 1 << 33, "pressure": False}, "moment": [0.25, -0.1, 1],
    },
    "nodefacts": {
        "v": 1, "node": "a", "uid": "u", "version": 3, "at_us": 4, "created_us": 1, "ready": True,
        "unschedulable": False, "allocatable": {"cpu": 1.5}, "capacity": {}, "labels": {"a": ""}, "annotations": {},
        "taints": [{"key": "k", "value": "", "effect": "NoExecute"}], "deleted": False,
    },
    "podfacts": {
        "v": 1, "node": "-", "pod": "u", "namespace": "s", "name": "n", "version": 3, "at_us": 4, "phase": "Pending",
        "created_us": 1, "requests": {}, "limits": {}, "labels": {}, "annotations": {}, "workload": "s/n",
        "deleted": False, "terminating": False,
    },
    "availability": {
        "v": 1, "node": "my_host", "at_us": 2**53 - 1, "seq": 0, "available": 1.5, "lower": 0.0, "upper": 1e300,
        "signal": 0.1, "cost": 5e-324, "capacity": 1, "pods": 3, "binding": "cpu", "mode": "capacity",
        "churn": True, "prior": 0.5, "usage": {"cpu": 0.1, "memory": 0.30000000000000004}, "explained": 1.0,
        "gap": 0.0, "since_us": 0,
    },
    "model": {
        "v": 1, "scope": "partition", "at_us": 1, "features": ["cpu", "memory"], "moment": [1.0, -0.5, 1.0],
        "nodes": 2, "pods": 1, "cost": [0.1, 0.2], "partition": 3,
    },
    "decision": {
        "v": 1, "namespace": "s", "name": "n", "pod": "u", "at_us": 4, "outcome": "placed", "node": "a",
        "mode": "argmax", "guaranteed": True, "note": "x", "workload": "s/n", "strategies": {"availability": 1.0},
        "nodes": 2, "feasible": 1, "refused": {"full": 1}, "seconds": 0.001,
        "ranked": [{
            "node": "a", "score": 50.0, "scores": {"availability": 50.0}, "room": 3.5, "reserved": 1.0,
            "state": "fresh",
        }],
        "refusals": [{"node": "b", "reason": "full", "needs": ["room for 1 more"]}],
    },
    "market": {
        "v": 1,
        "at_us": 7,
        "since_us": 1,
        "markets": [{"type": "m5", "zone": "a", "spot": True, "hours": 3.5, "price": 0.2, "interruptions": 1}],
    },
    "trust": {
        "v": 1, "replica": "e-1", "at_us": 7, "mode": "shadow", "risk": 0.1, "nodes": 3, "cores": 12, "price": 0.3,
        "measured": {"nodes": 1.5, "cores": 6, "price": 0.15}, "requested": {"nodes": 0.5, "cores": 2, "price": 0.05},
        "promises": [
            {"namespace": "s", "settled": 2, "broken": 0, "loose": 1, "evidence": 40, "against": 1, "promoted": True},
        ],
    },
    "shortage": {
        "v": 1, "replica": "e-1", "at_us": 7, "until_us": 9, "pods": 3,
        "waiting": [{"workload": "s/n", "pods": 3, "since_us": 4}], "full": ["a.b"], "stranded": [],
    },
    "reservations": {
        "v": 1, "node": "a.b",
        "pods": {
            "u": {
                "namespace": "s", "name": "n", "workload": "s/n", "at_us": 4, "until_us": 5, "requests": {"cpu": 0.5},
            },
        },
    },
    "prediction": {
        "v": 1, "node": "a", "at_us": 4, "horizon_seconds": 3600.0, "model": "max",
        "peak": {"cpu": 1.5, "memory": 2e9}, "violation": 0.05,
        "peaks": {"node": {"max": {"cpu": 1.5, "memory": 2e9}}, "system": {}},
        "capacity": {"cpu": 4, "memory": 8e9}, "requested": {"cpu": 2, "memory": 4e9},
        "unpredicted": {"cpu": 0, "memory": 0}, "reclaimable": {"cpu": 0.5, "memory": 0}, "formula": "mixed",
        "mid": {"mixed": {"cpu": 0.5, "memory": 0}}, "batch": {"cpu": 1, "memory": 1e9},
        "accuracy": {"max": {"violations": 0.25, "severity": 0.1, "savings": -0.5, "settled": 4.5}},
        "windows": 7, "reason": "change",
    },
    "reject": {
        "v": 1, "node": "a", "at_us": 4, "seq": 3, "reject": True, "score": 0.75, "threshold": 0.5, "rank": 2,
        "spikes": [1, -1], "weights": [0.75, 0.25], "since_us": 4,
    },
    "subspace": {
        "v": 1, "scope": "global", "at_us": 1, "metrics": ["a", "b"], "basis": [0.6, 0.8, -0.8, 0.6], "nodes": 3,
        "sigma": [2.0, 0.5],
    },
    "workloads": {
        "v": 1, "partition": 3, "at_us": 4, "chunk": 0, "namespaces": ["s"], "kinds": ["Deployment"],
        "workloads": ["w"], "pods": [2], "ready": [1], "cpu": [0.5], "memory": [1e6], "requested_cpu": [1],
        "requested_memory": [2e6], "initialized": [1], "initialization_seconds": [12.5],
    },
    "forecast": {
        "v": 1, "namespace": "s", "kind": "Deployment", "workload": "w", "at_us": 4, "pods": 2, "ready": 1,
        "initialization_seconds": 12.5, "horizon_seconds": 12.5, "observations": 4,
        "requested": {"cpu": 1, "memory": 2e6}, "current": {"cpu": 0.5, "memory": 1e6}, "model": "linear",
        "forecast": {"cpu": 0.75, "memory": 1e6}, "forecasts": {"linear": {"cpu": 0.75, "memory": 1e6}},
        "target": 0.8, "desired": 2, "raises": True,
    },
    "cursor": {"v": 1, "stream": "S", "created": "20250101T000000000000Z", "sequence": 1},
}  # fmt: skip
SAMPLES = GOOD["samples"]


def packed(content: object) -> bytes:
    return json.dumps(content).encode()


def refusal(kind: str, payload: bytes) -> str:
    with pytest.raises(Refused) as caught:
        codec.decode(MESSAGES[kind], payload)
    return str(caught.value)
