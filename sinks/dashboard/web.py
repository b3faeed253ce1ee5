"""The HTTP server of the dashboard: static files, events, queries.

Pages load nothing from elsewhere and run no script but the files of this package, which the content security policy
enforces. Nothing here changes any state but a connection's own.
"""

import asyncio
import errno
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import Counter

from bus import errors
from bus.client import Client
from schemas import codec
from schemas.settings import Settings
from schemas.subject import MAXIMUM_SUBJECT_BYTES, Names
from sinks.dashboard import recorder
from sinks.dashboard.access import Access
from sinks.dashboard.event_stream import EventStreams
from sinks.dashboard.feed import model, node, pipeline, reservations
from sinks.dashboard.feed.cluster import ClusterFeed
from sinks.dashboard.history import History, Unanswerable
from sinks.dashboard.shared import Shared
from sinks.period import LAST_US, Period
from sinks.serving import listener
from sinks.serving.connection import Connection, Limits

log = logging.getLogger(__name__)

Read = TypeVar("Read")

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_STATIC = Path(__file__).with_name("static")
_BODY_BYTES = 64 << 10
_BODY_SECONDS = 8.0  # until a body is whole; the connection ends after 10
_SEND_SECONDS = 60.0  # until a browser has an answer; a recording has megabytes
_PER_VIEWER = 6  # connections that browsers open to a server at most
_OTHER_CONNECTIONS = 64  # of health checks, scripts, and pages that wait for their turn
_SHARED_SECONDS = 1.0
_NO_MODEL: tuple[type[Exception], ...] = (*errors.REQUEST_FAILED, codec.Refused)
_QUERIES = 2  # at once; DuckDB uses all cores for each
_WAITING = 64  # more than ten pages ask at once; the rest of the connections are for others

REQUESTS = Counter("spazio_dashboard_requests_total", "requests of pages", ["path", "status"])


class Dashboard:
    """Answers the requests of pages."""

    def __init__(self, client: Client, settings: Settings, history: History) -> None:
        """Describe the sources.

        Args:
            client: Connection.
            settings: All settings.
            history: Reads the history.
        """
        self._client, self._settings, self._history = client, settings, history
        self._names = Names(settings.prefix)
        self._access = Access(settings.dashboard)
        self._cluster = ClusterFeed(client, settings)
        self._queries, self._unanswered = asyncio.Semaphore(_QUERIES), 0
        self._streams = EventStreams(settings.dashboard.viewers_max, _HEADERS, lambda: client.is_connected)
        self._pipeline = Shared(partial(pipeline.read, client, settings), _SHARED_SECONDS)
        self._reservations = Shared(partial(reservations.read, client, settings), _SHARED_SECONDS)

    def application(self) -> web.Application:
        """Return the routes."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[self._admit])
        app.on_shutdown.append(self._streams.close)
        app.router.add_get("/", _index)
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/api/about", self._about)
        app.router.add_get("/api/cluster", self._follow_cluster)
        app.router.add_get("/api/node/{node}", self._follow_node)
        app.router.add_get("/api/model", self._show_model)
        app.router.add_get("/api/pipeline", self._show_pipeline)
        app.router.add_get("/api/reservations", self._show_reservations)
        app.router.add_post("/api/query", self._query)
        app.router.add_post("/api/recording", self._record)
        app.router.add_static("/static", _STATIC)
        return app

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve within a context; yields the address.

        Raises:
            SettingsError: The address cannot be listened on.
        """
        own = self._settings.dashboard
        runner = web.AppRunner(self.application(), shutdown_timeout=1.0)
        await runner.setup()
        assert runner.server is not None
        interface = listener.Address("dashboard", own.host, own.port)
        limits = Limits(write_seconds=_SEND_SECONDS, connections=_PER_VIEWER * own.viewers_max + _OTHER_CONNECTIONS)
        try:
            async with listener.listen(runner.server, interface, limits, self._access.identity, _refused) as address:
                yield f"{address}/"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else "other"
        answer: web.StreamResponse
        if not request.can_read_body:  # of others, `_asked` reads the body first
            _work(request)
        try:
            answer = (None if request.path == "/healthz" else self._access.refusal(request)) or await handler(request)
        except web.HTTPException as error:
            REQUESTS.labels(path, str(error.status)).inc()
            error.headers.update(_HEADERS)
            raise
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            answer = web.Response(status=404, text="no file has a name of this length\n")
        REQUESTS.labels(path, str(answer.status)).inc()
        if not answer.prepared:
            answer.headers.update(_HEADERS)
        return answer

    async def _about(self, _: web.Request) -> web.Response:
        settings = self._settings
        return _json(
            {
                "prefix": settings.prefix,
                "expirySeconds": settings.cache.expiry_seconds,
                "reportSeconds": max(settings.estimate.report_seconds, settings.reject.report_seconds),
                "slowdown": settings.slowdown,
                "host": settings.sample.node_name,
                "now": time.time(),
                "refusal": self._streams.refusal,
                "bus": self._client.is_connected,
            }
        )

    async def _follow_cluster(self, request: web.Request) -> web.StreamResponse:
        return await self._streams.send(request, self._cluster.follow())

    async def _follow_node(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["node"]
        if max(len(self._names.node(kind, name)) for kind in node.KINDS) > MAXIMUM_SUBJECT_BYTES:
            return web.Response(status=400, text="no node has a name of this length\n")
        return await self._streams.send(request, node.follow(self._client, self._names, name))

    async def _show_pipeline(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._pipeline.get(), content_type="application/json")

    async def _show_reservations(self, _: web.Request) -> web.Response:
        return web.Response(body=await self._reservations.get(), content_type="application/json")

    async def _show_model(self, _: web.Request) -> web.Response:
        try:
            return _json(await model.read(self._client, self._settings))
        except _NO_MODEL as error:
            return _json({"model": None, "error": str(error) or type(error).__name__})

    async def _query(self, request: web.Request) -> web.Response:
        asked = await _asked(request, {"sql": str})
        if isinstance(asked, web.Response):
            return asked
        try:
            answer = await self._read_history(partial(self._answer, asked["sql"]))
        except Unanswerable as reason:
            return _json({"error": str(reason)})  # an answer for people; browsers log other states as errors
        return web.Response(body=answer, content_type="application/json")

    async def _record(self, request: web.Request) -> web.Response:
        """Answer with the flight recorder of a range in seconds, of one node or of all."""
        asked = await _asked(request, {"from": int | float, "to": int | float, "node": str})
        if isinstance(asked, web.Response):
            return asked
        if not 0 <= asked["from"] < asked["to"] <= LAST_US / 1e6:
            return _json({"error": "the range ends before it begins"})
        period = Period(round(asked["from"] * 1e6), round(asked["to"] * 1e6))
        nodes = [asked["node"]] if asked["node"] else []
        try:
            page = await self._read_history(partial(self._recording, period, nodes))
        except Unanswerable as reason:
            return _json({"error": str(reason)})
        return web.Response(body=page, content_type="text/html", headers={"Content-Disposition": "attachment"})

    async def _read_history(self, read: Callable[[], Read]) -> Read:
        """Read the history in a thread, when it is this request's turn.

        Raises:
            Unanswerable: It is not, or too many wait for theirs.
        """
        if self._unanswered >= _QUERIES + _WAITING:
            raise Unanswerable("too many queries are waiting; ask again in a moment")
        self._unanswered += 1
        try:
            async with self._queries:
                return await asyncio.to_thread(read)
        finally:
            self._unanswered -= 1

    def _answer(self, statement: str) -> bytes:
        """Return the answer to a statement as JSON, which may have megabytes."""
        own = self._settings.dashboard
        answer = self._history.query(statement, rows=own.query_rows, seconds=own.query_seconds)
        return msgspec.json.encode(answer._asdict())

    def _recording(self, period: Period, nodes: list[str]) -> bytes:
        seconds = self._settings.dashboard.query_seconds
        return recorder.page(recorder.read(self._history, period, nodes, seconds=seconds))


async def _asked(request: web.Request, fields: dict[str, Any]) -> dict[str, Any] | web.Response:
    """Return the fields of a request in JSON, or the answer to one that has others."""
    wanted = ", ".join(f'"{name}": …' for name in fields)
    if request.content_type != "application/json":
        return _json({"error": f"send JSON: {{{wanted}}}"}, status=415)
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            body = await request.read()
        _work(request)
        content = json.loads(body)
        given = {name: content[name] for name in fields}
    except TimeoutError:
        late = _json({"error": f"the body did not come within {_BODY_SECONDS:.0f} s"}, status=408)
        late.force_close()
        return late
    except (ValueError, LookupError, TypeError, RecursionError, ConnectionError):  # the last: the client is gone
        given = {}
    if not given or not all(isinstance(given[name], kind) for name, kind in fields.items()):
        return _json({"error": f"send JSON: {{{wanted}}}"}, status=400)
    return given


def _work(request: web.Request) -> None:
    """Suspend the deadline of a request that has come."""
    assert isinstance(request.protocol, Connection)
    request.protocol.work()


def _refused(status: int) -> None:
    """Count a response to malformed HTTP."""
    REQUESTS.labels("other", str(status)).inc()


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _index(_: web.Request) -> web.FileResponse:
    return web.FileResponse(_STATIC / "index.html")


def _json(content: object, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")
