"""A server that comes back without its streams, as one that has lost its disk."""

import asyncio
import shutil

import pytest

from bus import connection, stream
from bus.connection import Connection
from bus.health import Health
from schemas.settings import Settings
from schemas.subject import Names
from tests.conftest import NatsServer
from tests.integration.bus.dying import answers, quick
from tests.support.background import background

NAMES = Names()


def wipe(server: NatsServer) -> None:
    """Kill a server, and start it again with an empty disk."""
    server.kill()
    for folder in server.config.parent.rglob("jetstream"):
        shutil.rmtree(folder)
    server.start()


async def made_again(client: Connection, settings: Settings) -> None:
    """Wait until the server has all streams."""
    async with asyncio.timeout(10):
        while await stream.missing(client, settings):  # noqa: ASYNC110 # another task makes them
            await asyncio.sleep(0.05)


async def test_a_running_service_makes_a_stream_again_that_somebody_has_deleted(
    settings: Settings, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.5)
    settings, health = quick(settings), Health()
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
        async with background(stream.keep(client, settings, health, ensured=client.stats["reconnects"])):
            for name in (NAMES.telemetry, f"KV_{NAMES.pods_bucket}"):
                await client.jetstream().delete_stream(name)
                await made_again(client, settings)
    assert not health.problems


async def test_a_running_service_makes_the_streams_again(settings: Settings, nats_server: NatsServer) -> None:
    settings, health = quick(settings), Health()
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
        before = await stream.describe(client, NAMES.telemetry)
        keeping = asyncio.create_task(stream.keep(client, settings, health, ensured=0))
        wipe(nats_server)
        await answers(client)
        await made_again(client, settings)
        keeping.cancel()
        assert not health.problems
        assert (await stream.describe(client, NAMES.telemetry)).created > before.created
