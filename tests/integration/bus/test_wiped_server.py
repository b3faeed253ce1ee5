"""A server that comes back without its streams, as one that has lost its disk."""

import asyncio
import shutil

import pytest

from bus import connection, stream
from bus.connection import Connection
from bus.health import Health
from bus.publishing import storage_check
from bus.publishing.storage_check import StorageCheck, StorageLost
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


@pytest.mark.parametrize(("before", "later"), [(0, 0), (1, 0), (1, 2)])
async def test_a_producer_notices_that_a_stream_was_deleted_and_made_again(
    settings: Settings, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, before: int, later: int
) -> None:
    """`before`, `later`: messages that the stream and the new one acknowledge before the producer asks."""
    monkeypatch.setattr(storage_check, "_LOOK_SECONDS", 0.0)
    async with connection.connect(settings, "test") as client:
        js, storage = client.jetstream(), StorageCheck(client, [NAMES.telemetry], timeout_seconds=2)

        async def publish(identity: str) -> None:
            stored = await js.publish(NAMES.node("podfacts", "n"), b"{}", headers={"Nats-Msg-Id": identity})
            storage.acknowledged(stored.stream, stored.seq, identity)

        await stream.ensure(client, settings)
        await storage.begin()
        for number in range(before):
            await publish(f"a{number}")
        await storage.check()
        await js.delete_stream(NAMES.telemetry)
        await stream.ensure(client, settings)
        for number in range(later):
            await publish(f"b{number}")
        with pytest.raises(StorageLost, match="deleted and made again"):
            await storage.check()


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
