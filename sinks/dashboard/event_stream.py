"""Streams of events to open pages: bounded in number, and ended when a page is closed or does not read."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from aiohttp import web
from prometheus_client import Gauge

from sinks.serving.connection import CUT

_PING_SECONDS = 2.0  # a page takes 8 s of silence for a lost server (static/base/stream.js)
_LOOK_SECONDS = 1.0  # for whether the page is still there
_READ_SECONDS = 30.0  # for which a page may read nothing while there is something to read
_PING = b"event: ping\ndata: {}\n\n"  # no comment, which scripts cannot see

VIEWERS = Gauge("spazio_dashboard_viewers", "open event streams of pages")


class EventStreams:
    """The streams of one dashboard."""

    def __init__(self, most: int, headers: Mapping[str, str]) -> None:
        """Set the bound.

        Args:
            most: Streams that may be open at once.
            headers: Headers of every answer.
        """
        self._most, self._headers = most, headers
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
        """Send events until the page is closed; a ping every few seconds shows that the server lives."""
        if self.refusal is not None:
            return web.Response(status=503, text=f"{self.refusal}\n")
        headers = {**self._headers, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        stream = asyncio.create_task(_stream(events, request, response), name="event stream")
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


async def _stream(events: AsyncIterator[bytes], request: web.Request, response: web.StreamResponse) -> None:
    async with aclosing(events):  # type: ignore[type-var] # generators, which can be closed
        await response.prepare(request)
        await response.write(b": spazio\n\n")
        await _pass_on(events, request, response)


async def _pass_on(events: AsyncIterator[bytes], request: web.Request, response: web.StreamResponse) -> None:
    now = asyncio.get_running_loop().time
    coming, written = asyncio.ensure_future(anext(events)), now()
    try:
        while request.transport is not None and not request.transport.is_closing():
            done, _ = await asyncio.wait({coming}, timeout=_LOOK_SECONDS)
            if not done:
                if now() - written > _PING_SECONDS:
                    await _write(_PING, request, response)
                    written = now()
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
