"""Many clients, idle and slow ones: the dashboard bounds their connections, and pages that are open go on."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import aiohttp
import pytest
from nats.aio.client import Client

from schemas.settings import Settings
from sinks.dashboard import web as dashboard
from sinks.dashboard.history import Answer
from sinks.serving.connection import Limits
from tests.support.dashboard.pages import served

MOST = dashboard._PER_VIEWER + dashboard._OTHER_CONNECTIONS  # with one viewer
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(stack: AsyncExitStack, address: str, content: bytes) -> Stream:
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    stack.callback(writer.transport.abort)
    writer.write(content)
    return reader, writer


async def ended(stream: Stream) -> bool:
    """Tell whether the server has closed a connection."""
    try:
        async with asyncio.timeout(0.01):
            return await stream[0].read(1) == b""
    except (TimeoutError, ConnectionError) as error:
        return isinstance(error, ConnectionError)


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
async def test_of_too_many_connections_the_oldest_end_and_open_pages_go_on(
    content: bytes, client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(client, settings, viewers_max=1))
        viewer, _ = await connected(stack, address, b"GET /api/cluster HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await viewer.readuntil(b": spazio\n\n")
        streams = [await connected(stack, address, content) for _ in range(MOST + 30)]
        async with web.get(f"{address}/api/about") as answer:
            assert answer.status == 200
        closed = await asyncio.gather(*map(ended, streams))
        assert 30 <= sum(closed) <= 32
        assert all(closed[:30])
        async with asyncio.timeout(60):
            await viewer.readuntil(b"event: ping")


async def test_a_client_that_sends_its_header_slowly_is_cut_off(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "Limits", partial(Limits, read_seconds=0.2))
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(client, settings))
        slow = await connected(stack, address, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        async with asyncio.timeout(60):
            while not await ended(slow):
                slow[1].write(b"a")


async def test_queries_beyond_those_that_may_wait_are_refused_with_a_sentence(
    client: Client, settings: Settings, web: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "_WAITING", 1)
    waiting, gate, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    def query(*_: object, **__: object) -> Answer:
        loop.call_soon_threadsafe(waiting.set)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()
        return Answer([], [], False)

    monkeypatch.setattr("spazio.service.composition.dashboard.Folder.query", query)
    async with served(client, settings) as address:

        async def ask() -> str | None:
            async with web.post(f"{address}/api/query", json={"sql": "SELECT 1"}) as answer:
                error = (await answer.json()).get("error")
                return error if error is None else str(error)

        asked = [asyncio.create_task(ask()) for _ in range(4)]
        try:
            await waiting.wait()
            done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=10)
            assert [each.result() for each in done] == ["too many queries are waiting; ask again in a moment"]
        finally:
            gate.set()
        assert sorted(map(str, await asyncio.gather(*asked)))[:3] == ["None"] * 3
