"""History as a service against a real nats-server: what is published is in the tables, whatever else arrives."""

import asyncio
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus.health import Health
from bus.stream import describe
from schemas import codec
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.history import service, view
from tests.support.telemetry import block
from tests.support.workload import of_each_kind

NAMES = Names()
TABLES = ("samples", "containers", "pods", "nodes", "podfacts")


def counts(folder: Path) -> dict[str, int]:
    with view.connect(folder) as connection:
        rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in TABLES}
    return {table: row[0] for table, row in rows.items() if row}


async def until(folder: Path, expected: dict[str, int]) -> None:
    async with asyncio.timeout(20):
        while True:
            if (folder / view.FILE).exists() and counts(folder) == expected:
                return
            await asyncio.sleep(0.1)


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"history": settings.history.model_copy(update={"flush_seconds": 0.2})})


async def test_what_agents_and_the_cluster_watch_publish_is_in_the_tables(client: Client, quick: Settings) -> None:
    js, writing = client.jetstream(), asyncio.create_task(service.run(client, Live(quick), Health()))
    for number in range(5):
        await js.publish(NAMES.node("samples", "n"), codec.encode(block("n", number)))
        for kind, message in of_each_kind(number).items():
            for _ in range(2):  # without an id the stream keeps both
                await js.publish(NAMES.node(kind, "n"), codec.encode(message))
            await js.publish(NAMES.of(kind, token("other")), codec.encode(message))
            await js.publish(NAMES.node(kind, "n"), b"{")
    await until(quick.history_dir, {"samples": 50, "containers": 5, "pods": 15, "nodes": 5, "podfacts": 5})
    assert (await describe(client, NAMES.events)).last == 5 * 4 * 2  # what is no message, or another node's
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
