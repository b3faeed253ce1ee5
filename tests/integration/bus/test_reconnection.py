"""What becomes of a connection's reader and buffers while its server hangs, is away or comes back."""

import asyncio

import pytest

from bus import connection, watchdog
from bus.connection import DISCONNECTS, Connection
from bus.health import Health
from bus.link import READERS
from schemas.settings import Settings
from tests.conftest import NatsServer
from tests.integration.bus.dying import answers, go_on, guarded, proxy, quick, stop


async def test_a_flush_waits_for_what_was_published_before_it(settings: Settings, nats_server: NatsServer) -> None:
    async with proxy(nats_server) as between, connection.connect(quick(settings, between.url), "test") as client:
        between.asked = b""
        await client.publish("x", b"first")
        await client.flush()
        assert between.asked == b"PUB x  5\r\nfirst\r\nPING\r\n"


async def test_what_is_buffered_for_somebody_who_hangs_does_not_hold_up_the_new_connection(
    settings: Settings, nats_server: NatsServer
) -> None:
    async with proxy(nats_server) as between, guarded(quick(settings, between.url)) as (client, health, _):
        await answers(client)
        between.deaf = True
        assert client._transport is not None
        for _ in range(40):  # more than the kernel takes
            client._transport.write(b"PUB x 500000\r\n" + bytes(500_000) + b"\r\n")
        async with asyncio.timeout(5):
            while between.connections == 1 or health.dead:  # noqa: ASYNC110 # seen from outside
                await asyncio.sleep(0.05)
        await answers(client)


@pytest.mark.parametrize("how", ["cancelled", "raised"])
async def test_a_reader_that_ends_on_its_own_is_replaced(settings: Settings, client: Connection, how: str) -> None:
    ended = READERS._value.get()
    assert client._reading_task is not None
    if how == "cancelled":
        client._reading_task.cancel()
    else:

        def fail(*_: object) -> None:
            raise RuntimeError("a defect")

        subscription = await client.subscribe("x")
        client.taps[subscription._id] = fail
        await client.publish("x", b"")
    async with asyncio.timeout(3):
        while READERS._value.get() == ended:  # noqa: ASYNC110 # the client's own task
            await asyncio.sleep(0.01)
    client.taps.clear()
    await answers(client)
    assert (await client.jetstream().account_info()).streams


async def test_an_answer_that_nobody_waits_for_any_more_does_not_end_the_reader(
    client: Connection, nats_server: NatsServer
) -> None:
    lost = DISCONNECTS._value.get(), READERS._value.get()
    stop(nats_server)
    for _ in range(3):
        assert not await connection.alive(client, 0.1)
    go_on(nats_server)
    await answers(client)
    assert (DISCONNECTS._value.get(), READERS._value.get()) == lost
    assert client.is_connected


@pytest.mark.slow
async def test_a_server_that_is_down_for_long_is_waited_for(settings: Settings, nats_server: NatsServer) -> None:
    async with guarded(quick(settings)) as (client, health, watching):
        await asyncio.to_thread(nats_server.kill)
        await asyncio.sleep(4)
        assert not watching.done()
        assert not health.dead
        await asyncio.to_thread(nats_server.start)
        await answers(client)


@pytest.mark.slow
async def test_a_client_that_does_not_even_try_is_given_up(
    settings: Settings, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_FLUSH_SECONDS", 0.0)
    client._status = Connection.RECONNECTING  # as if its task had died
    with pytest.raises(watchdog.Hopeless, match="has not tried to connect"):
        async with asyncio.timeout(60):
            await watchdog.watch(client, Health(), quick(settings).nats)
    client._status = Connection.CONNECTED
