"""What the extender's health says of nodes that do not report."""

import asyncio
import contextlib

import pytest

from bus.health import Health
from sinks.extender import service
from sinks.extender.requeue import WaitingPods
from sinks.extender.shadow import Ledger
from sinks.extender.state.cluster_state import ClusterState
from tests.support.extender.placement import given, node
from tests.support.server.raw import eventually


async def test_nodes_from_before_a_pause_are_missed_only_after_the_time_in_which_they_would_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "_COUNT_SECONDS", 0.01)
    state, health = ClusterState(given()), Health()
    state.describe(node("n1"))
    counting = asyncio.create_task(service._count(state, WaitingPods(), Ledger(lambda _: None), health, 0.5))
    await asyncio.sleep(0.1)
    assert not health.problems

    async def degraded() -> bool:
        return bool(health.problems)

    await eventually(degraded)
    assert "no node reports" in health.problems["telemetry"]
    counting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await counting
