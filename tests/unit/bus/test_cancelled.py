"""Who is cancelled ends, also when the connection breaks at the same instant."""

import asyncio
import contextlib

import pytest
from nats.aio.client import Client

from bus import connection
from schemas import settings as all_settings
from tests.support.nats.client import connect
from tests.support.nats.server import Server


async def test_a_request_that_is_cancelled_while_the_connection_breaks_ends_its_task() -> None:
    server = Server()
    async with connect(server) as client:
        server.delay_seconds = 60

        async def ask() -> None:
            while True:
                try:
                    await client.request("$JS.API.INFO", b"", timeout=5)
                except Exception:  # noqa: BLE001 # as services do, which try again whatever it was
                    await asyncio.sleep(0)

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0.05)
        (waiting,) = client._resp_map.values()
        waiting.set_exception(ConnectionError("the connection broke"))
        asking.cancel()
        await asyncio.wait({asking}, timeout=1)
        ended = asking.cancelled()
        asking.cancel()
        assert ended


async def test_who_is_cancelled_while_the_server_answers_a_ping_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the watchdog of a service, which pings again and again."""
    pings = []

    async def send(waiting: asyncio.Future[bool]) -> None:
        pings.append(waiting)

    async with connect(Server()) as client:
        monkeypatch.setattr(client, "_send_ping", send)

        async def ping() -> None:
            while True:
                await connection.alive(client, 60)

        pinging = asyncio.create_task(ping())
        await asyncio.sleep(0.05)
        pings[0].set_result(True)
        pinging.cancel()
        await asyncio.wait({pinging}, timeout=1)
        ended = pinging.cancelled()
        pinging.cancel()
        assert ended


async def test_a_start_that_is_cancelled_while_an_attempt_to_connect_ends_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_client: Client, _server: object) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # as `wait_for` of Python 3.11 does at the end of an attempt
            await asyncio.sleep(60)
        raise ConnectionError("the handshake failed")

    monkeypatch.setattr(Client, "_connect_to_server", fail)
    starting = asyncio.create_task(connection.dial(all_settings.load({}, environ={}), "test"))
    await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.wait({starting}, timeout=1)
    ended = starting.cancelled()
    starting.cancel()
    assert ended
