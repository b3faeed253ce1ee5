"""What measured room leaves of nodes, and what requests leave of them."""

from typing import Any

import pytest

from schemas.messages.facts import PodFacts
from tests.support.extender.placement import START, node, pod, report
from tests.unit.sinks.extender.trust.test_promises import Tracked, published


def pod_on(where: str, version: int, cpu: float) -> PodFacts:
    return pod(f"on-{where}", version, node=where, requests={"cpu": cpu, "memory": 0.0})


def test_measured_room_and_requests_leave_shares_of_nodes_and_of_what_they_cost() -> None:
    """Three pods of a quarter each surely fit on a, and half of it can be requested; on b no whole one, but all can."""
    tracked = Tracked()
    barred = [{"key": "control-plane", "effect": "NoSchedule"}]
    every: dict[str, dict[str, Any]] = {
        "a": {"price": 0.4},
        "b": {},
        "closed": {"unschedulable": True},
        "unready": {"ready": False},
    }
    every |= {"silent": {"price": 0.4}, "barred": {"taints": barred}}
    for name, changed in every.items():
        tracked.cluster_state.describe(node(name, **changed))
    tracked.cluster_state.pods.hear(pod_on("a", 1, cpu=2.0))
    tracked.cluster_state.pods.hear(pod_on("b", 2, cpu=0.0))
    for name, lower in (("a", 3.7), ("b", 0.4), ("closed", 9.0), ("unready", 9.0), ("barred", 9.0)):
        tracked.cluster_state.report(report(name, START, 20.0, lower=lower, cost=0.25))
    message = published(tracked)
    assert (message.nodes, message.cores, message.price) == (2, 8.0, 0.4)
    assert message.measured.model_dump() == pytest.approx({"nodes": 0.75, "cores": 3.0, "price": 0.3})
    fewer = 1 - 1 / 110
    assert message.requested.model_dump() == pytest.approx(
        {"nodes": 0.5 + fewer, "cores": 2.0 + 4 * fewer, "price": 0.2}, abs=1e-4
    )
