"""Sums of what pods and reservations request, by node: the columns that both count in."""

from collections.abc import Mapping

from kube import quantity
from sinks.extender import pod
from sinks.extender.candidate import Container
from sinks.extender.state.reserved import STATED
from sinks.extender.state.rows import Rows
from sinks.extender.strategy import target_load_packing

_STAND_INS = {name: float(quantity.parse(amount)) for name, amount in pod.STAND_INS.items()}


def add(rows: Rows, row: int, requests: Mapping[str, float], sign: int) -> None:
    """Add a pod's requests to its node's sums (sign 1), or subtract them (sign -1)."""
    for resource, amount in requests.items():
        if amount:  # a column for each resource that is named would take as much memory as somebody likes
            rows.count(f"requested:{resource}", row, sign * amount, sign)
    for resource, amount in nonzero(requests).items():
        rows[f"nonzero:{resource}"][row] += sign * amount
    rows["pods"][row] += sign


def nonzero(requests: Mapping[str, float]) -> dict[str, float]:
    """Return a pod's CPU and memory requests, with kube-scheduler's defaults for missing ones."""
    return {resource: requests.get(resource, least) for resource, least in _STAND_INS.items()}


def columns() -> dict[str, float]:
    """Return the columns that pods need, and their values in an empty row."""
    stated = {f"stated:{resource}": 0.0 for resource in STATED}
    return {**dict.fromkeys(("pods", "recent", "starting", "placed", "nonzero:cpu", "nonzero:memory"), 0.0), **stated}


def expected(requests: Mapping[str, float], limits: Mapping[str, float] | None = None) -> float:
    """Return the cores that a pod is expected to use, as if it were one container."""
    return target_load_packing.expected([Container(requests.get("cpu"), (limits or {}).get("cpu"))])
