"""Event streams of pages, in a real server and client."""

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
import yarl
from aiohttp import web

from sinks.dashboard import event_stream
from sinks.dashboard.event_stream import EventStreams

_HANGING_SECONDS = 30.0


async def serving(streams: EventStreams, events: Callable[[], AsyncIterator[bytes]]) -> tuple[web.AppRunner, yarl.URL]:
    """Start a server that sends events to everybody; returns it and its address."""

    async def follow(request: web.Request) -> web.StreamResponse:
        return await streams.send(request, events())

    app = web.Application()
    app.router.add_get("/", follow)
    app.on_shutdown.append(streams.close)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=2 * _HANGING_SECONDS)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    return runner, yarl.URL.build(scheme="http", host=host, port=port)


async def test_a_stream_without_events_sends_pings_that_scripts_can_see_with_the_state_of_the_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "_PING_SECONDS", 0.0)
    monkeypatch.setattr(event_stream, "_LOOK_SECONDS", 0.01)
    answering = [True, False, False, True]
    streams = EventStreams(1, {}, lambda: answering.pop(0) if len(answering) > 1 else answering[0])

    async def silence() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    runner, address = await serving(streams, silence)
    try:
        async with aiohttp.ClientSession() as session, session.get(address) as page:
            async with asyncio.timeout(_HANGING_SECONDS):
                pings = [await page.content.readuntil(b"}\n\n") for _ in range(4)]
    finally:
        await runner.cleanup()
    states = [ping.rpartition(b"event: ping\ndata: ")[2] for ping in pings]
    assert states == [b'{"bus":true}\n\n'] + 2 * [b'{"bus":false}\n\n'] + [b'{"bus":true}\n\n']


async def test_a_stream_says_at_once_that_the_bus_is_away_also_between_events() -> None:
    answering = False
    streams = EventStreams(1, {}, lambda: answering)

    async def busy() -> AsyncIterator[bytes]:
        while True:
            yield b"event: nodes\ndata: {}\n\n"
            await asyncio.sleep(0.001)

    runner, address = await serving(streams, busy)
    try:
        async with aiohttp.ClientSession() as session, session.get(address) as page:
            async with asyncio.timeout(_HANGING_SECONDS):
                await page.content.readuntil(b': spazio\n\nevent: ping\ndata: {"bus":false}\n\n')
                answering = True
                await page.content.readuntil(b'event: ping\ndata: {"bus":true}\n\n')
    finally:
        await runner.cleanup()


async def test_a_client_that_reads_nothing_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "_READ_SECONDS", 0.2)
    streams, ended = EventStreams(1, {}, lambda: True), asyncio.Event()

    async def flood() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 20)
        finally:
            ended.set()

    runner, address = await serving(streams, flood)
    try:
        _, writer = await asyncio.open_connection(address.host, address.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        async with asyncio.timeout(_HANGING_SECONDS):
            await ended.wait()
            while streams.refusal is not None:  # noqa: ASYNC110 # it has no event
                await asyncio.sleep(0.01)
        writer.close()
    finally:
        await runner.cleanup()


async def test_a_server_that_ends_waits_for_no_page_that_stays_open() -> None:
    streams, ended = EventStreams(2, {}, lambda: True), asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b"event: first\n\n"
            await asyncio.Event().wait()
        finally:
            ended.set()

    runner, address = await serving(streams, events)
    async with aiohttp.ClientSession() as session, session.get(address) as page:
        async with asyncio.timeout(_HANGING_SECONDS):
            await page.content.readuntil(b"first\n\n")
            await runner.cleanup()
            assert ended.is_set()
            assert await page.content.read() == b""
    assert streams.refusal is None
