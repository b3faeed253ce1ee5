"""Past prices of nodes reach extenders over the bus, from a history in a folder that they do not share."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus.health import Health
from schemas.live import Live
from schemas.settings import Settings
from sinks.extender.feed.follow import Followed
from sinks.extender.state.cluster_state import ClusterState
from sinks.history import service as history
from sinks.history.tables import facts
from tests.support.extender.placement import node

SPOT = {"karpenter.sh/capacity-type": "spot"}
HOUR = 3_600_000_000


async def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def with_history(settings: Settings, folder: Path) -> Settings:
    """Return settings whose history has a spot node that was there for two days and cost 0.3 an hour."""
    began = time.time_ns() // 1000 - 48 * HOUR
    path = folder / "history" / "nodes" / "date=2026-01-01" / "hour=00" / "s-1-2.parquet"
    path.parent.mkdir(parents=True)
    given = node("old", at_us=began, type="m5", zone="a", labels=SPOT, price=0.3)
    facts.nodes([given]).write_parquet(path)
    return settings.model_copy(update={"data": settings.data.model_copy(update={"dir": folder})})


@pytest.mark.slow
async def test_an_extender_without_the_historys_folder_knows_past_prices(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    cluster_state = ClusterState(settings)
    cluster_state.describe(node("new", type="m5", zone="a", labels=SPOT))
    recorded = Live(with_history(settings, tmp_path))
    tasks = [
        asyncio.create_task(Followed(client, settings, cluster_state).run()),
        asyncio.create_task(history.run(client, recorded, Health())),
    ]
    try:
        await until(lambda: cluster_state.market.at_us > 0)
        row = cluster_state.rows.rows(["new"])
        assert cluster_state.rows["median"][row].tolist() == [0.3]
        assert cluster_state.rows["interruptions"][row].tolist() == [0.0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
