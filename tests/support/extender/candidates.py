"""A pod and nodes for tests of placement: everything is unknown unless it is given."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sinks.extender.candidate import Array, Candidates, Container, Pod

GIB = 2.0**30
NATIVE = ("cpu", "memory", "ephemeral-storage", "pods")


def pod(requests: Mapping[str, float] | None = None, **fields: Any) -> Pod:
    """Return a pod that states no more than it is given; `nonzero` is what it requests."""
    requests = requests or {}
    defaults: dict[str, Any] = {
        "uid": "u1",
        "namespace": "shop",
        "name": "web-1",
        "workload": "shop/web",
        "scheduler": "default-scheduler",
        "owner_kind": "",
        "priority": 0,
        "labels": {},
        "annotations": {},
        "requests": requests,
        "limits": {},
        "nonzero": {name: requests.get(name, 0.0) for name in ("cpu", "memory")},
        "containers": (Container(requests.get("cpu"), None),),
    }
    return Pod(**defaults | fields)


def nodes(count: int, **fields: Any) -> Candidates:
    """Return nodes; a field that is a number or a list is made an array, by resource if it is a mapping.

    What is requested is 0 where it is not given, with and without stand-ins.
    """
    unknown = np.full(count, np.nan)
    defaults: dict[str, Any] = {
        "names": [f"n{index}" for index in range(count)],
        "binding": [""] * count,
        "labels": [{}] * count,
        "annotations": [{}] * count,
        "spot": np.zeros(count, dtype=np.bool_),
        "unseen": np.zeros(count, dtype=np.bool_),
        "withheld": np.zeros(count),
        "running": np.zeros(count),
        "reserved": np.zeros(count),
        "pods": np.zeros(count),
        "recent_cpu": np.zeros(count),
        "allocatable": {"cpu": unknown, "memory": unknown},
        "requested": {},
        "peak": {"cpu": unknown, "memory": unknown},
        "unpredicted": {"cpu": np.zeros(count), "memory": np.zeros(count)},
    }
    fields.setdefault("sure", fields.get("room", unknown))
    fields.setdefault("starting", fields.get("reserved", 0))
    for name in ("room", "cores", "usage_cpu", "price", "median_price", "interruption_rate"):
        defaults[name] = unknown
    for name, value in fields.items():
        if isinstance(value, Mapping):
            defaults[name] = {key: _array(each, count) for key, each in value.items()}
        elif name in ("names", "binding", "labels", "annotations", "spot", "unseen"):
            defaults[name] = np.array(value) if name in ("spot", "unseen") else value
        else:
            defaults[name] = _array(value, count)
    defaults["requested"] = {key: np.zeros(count) for key in defaults["allocatable"]} | defaults["requested"]
    defaults.setdefault("nonzero", {key: defaults["requested"].get(key, np.zeros(count)) for key in ("cpu", "memory")})
    return Candidates(**defaults)


def arbitrary(seed: int, count: int = 7) -> tuple[Pod, Candidates]:
    """Return a pod and nodes drawn at random, a fourth of everything unknown, zeros and extremes among the rest."""
    draw = np.random.default_rng(seed)
    resources = ("cpu", "memory", "ephemeral-storage", "example.com/gpu")

    def some(*most: float) -> Array:
        values = np.where(draw.random(count) < 0.2, draw.choice(most, count), draw.uniform(0, most[0], count))
        return np.where(draw.random(count) < 0.25, np.nan, values)

    asked = {name: float(draw.choice([0, 0.001, 0.7, 3, 1e12])) for name in resources if draw.random() < 0.6}
    types = ("", "ssd", "HDD", "nvme")
    return pod(
        asked,
        limits={name: 2 * amount for name, amount in asked.items() if draw.random() < 0.5},
        annotations={"spazio.disk-type": str(draw.choice(types))},
        labels={"spazio.network-type": str(draw.choice(types[:2]))},
        priority=int(draw.choice([-5, 0, 1000])),
        containers=tuple(
            Container(*([None, 0.0, 0.3][pick] for pick in draw.integers(0, 3, 2))) for _ in range(draw.integers(0, 4))
        ),
    ), nodes(
        count,
        room=some(20, 0, 1, 1e9, -3),
        reserved=draw.integers(0, 3, count),
        binding=draw.choice(["", "cpu", "memory"], count).tolist(),
        allocatable={name: some(8, 0, 1e15) for name in (*resources, "pods")},
        requested={name: some(4, 0, 1e15) for name in (*resources, "pods")},
        pods=some(8, 0, 110),
        cores=some(8, 0, 1),
        usage_cpu=some(1, 0, 1.2),
        recent_cpu=some(2, 0),
        peak={name: some(8, 0) for name in ("cpu", "memory")},
        unpredicted={name: some(1, 0) for name in ("cpu", "memory")},
        labels=[{"spazio.disk-type": str(each)} for each in draw.choice(types, count)],
        annotations=[{"spazio.network-type": str(each)} for each in draw.choice(types, count)],
        price=some(2, 0, 1e300),
        median_price=some(2, 0, 1e300),
        interruption_rate=some(0.1, 0, 1e300),
        spot=draw.random(count) < 0.5,
    )


def taken(result: Candidates, indices: Sequence[int]) -> Candidates:
    """Return these nodes of those, in this order."""
    fields: dict[str, Any] = {}
    for name in Candidates.__slots__:
        value = getattr(result, name)
        if isinstance(value, Mapping):
            fields[name] = {key: each[indices] for key, each in value.items()}
        else:
            fields[name] = value[indices] if isinstance(value, np.ndarray) else [value[index] for index in indices]
    return Candidates(**fields)


def _array(value: Any, count: int) -> Array:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)).copy()
