"""Streams of events to open pages: bounded in number, and ended when a page is closed or does not read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing

from aiohttp import web
from prometheus_client import Gauge

from sinks.serving.connection import CUT

_PING_SECONDS = 2.0  # a page takes 8 s of silence for a lost server (static/base/stream.js)
_LOOK_SECONDS = 1.0  # for whether the page is still there
_READ_SECONDS = 30.0  # for which a page may read nothing while there is something to read

VIEWERS = Gauge("spazio_dashboard_viewers", "open event streams of pages")


class EventStreams:
    """The streams of one dashboard."""

    def __init__(self, most: int, headers: Mapping[str, str], bus_answers: Callable[[], bool]) -> None:
        """Set the bound.

        Args:
            most: Streams that may be open at once.
            headers: Headers of every answer.
            bus_answers: Tells whether the bus answers; without it there may be no event for as long as it is away.
        """
        self._most, self._headers, self._bus_answers = most, headers, bus_answers
        self._open = set[asyncio.Task[None]]()

    @property
    def refusal(self) -> str | None:
        """Why no further stream is opened; None: one is."""
        return "too many pages are open; close some" if len(self._open) >= self._most else None

    async def close(self, _: web.Application) -> None:
        """End all streams, so that the server does not wait for pages that stay open."""
        for stream in self._open:
            stream.cancel()

    async def send(self, request: web.Request, events: AsyncIterator[bytes]) -> web.StreamResponse:
        """Send events until the page is closed; pings show that the server lives, and whether the bus answers."""
        if self.refusal is not None:
            return web.Response(status=503, text=f"{self.refusal}\n")
        headers = {**self._headers, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        stream = asyncio.create_task(self._stream(events, request, response), name="event stream")
        self._open.add(stream)
        VIEWERS.set(len(self._open))
        try:
            await stream
        except (ConnectionError, asyncio.CancelledError):
            pass  # the page is closed
        finally:
            stream.cancel()
            await asyncio.wait({stream})
            self._open.discard(stream)
            VIEWERS.set(len(self._open))
        return response

    async def _stream(self, events: AsyncIterator[bytes], request: web.Request, response: web.StreamResponse) -> None:
        async with aclosing(events):  # type: ignore[type-var] # generators, which can be closed
            await response.prepare(request)
            await response.write(b": spazio\n\n")
            await self._pass_on(events, request, response)

    async def _pass_on(self, events: AsyncIterator[bytes], request: web.Request, response: web.StreamResponse) -> None:
        now = asyncio.get_running_loop().time
        coming, written, answered = asyncio.ensure_future(anext(events)), now(), True
        try:
            while request.transport is not None and not request.transport.is_closing():
                answers = self._bus_answers()
                if answers != answered or now() - written > _PING_SECONDS:
                    await _write(_ping(answers), request, response)
                    written, answered = now(), answers
                done, _ = await asyncio.wait({coming}, timeout=_LOOK_SECONDS)
                if not done:
                    continue
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                await _write(event, request, response)
                written = now()
                coming = asyncio.ensure_future(anext(events))
        finally:
            coming.cancel()
            await asyncio.wait({coming})


def _ping(bus_answers: bool) -> bytes:
    """Return an event, since scripts cannot see comments."""
    return b'event: ping\ndata: {"bus":%b}\n\n' % (b"true" if bus_answers else b"false")


async def _write(event: bytes, request: web.Request, response: web.StreamResponse) -> None:
    """Write an event, or close the connection of a client that does not read: it would keep a place for ever."""
    try:
        async with asyncio.timeout(_READ_SECONDS):
            await response.write(event)
    except TimeoutError as error:
        if request.transport is not None:
            request.transport.abort()
        CUT.labels("slow").inc()
        raise ConnectionError("the client does not read") from error
