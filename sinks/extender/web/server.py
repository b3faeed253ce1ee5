"""The HTTP server of the extender: kube-scheduler posts a verb, the selector decides, the server replies.

The scheduler places one pod after another and waits for each answer, so the latency of single calls over one kept-alive
connection matters. Replies have a Content-Length: Go reuses a connection only if it has read the end of the body, which
it does not with chunks. An idle connection stays open for longer than in Go's clients (90 seconds), so that the server
never closes it during a request. `connection` closes slow connections and bounds their number.

The scheduler treats every status but 200 as a failed call. A pod that cannot be evaluated is therefore answered with
200 and Error, which appears in the pod's events, and a malformed body with 400.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from prometheus_client import Counter, Histogram

from bus.health import Health
from schemas.sections.placement import Extender
from sinks.extender.web import access, wire
from sinks.extender.web.selector import Selector
from sinks.serving import listener, tls
from sinks.serving.connection import Connection, Limits

log = logging.getLogger(__name__)

PREFIX = "/scheduler"

_CLOSE_SECONDS = 2.0
_MOST_LOGGED = 100
_GONE = (ConnectionError, web.PayloadAccessError)
_NO_BIND = (
    "binding is off here: take bindVerb out of the scheduler's configuration, or set SPAZIO_EXTENDER_BIND=true and let "
    "the extender create pods/binding"
)

REQUESTS = Counter("spazio_extender_requests_total", "requests to the extender", ["verb", "status"])
SECONDS = Histogram(
    "spazio_extender_request_seconds",
    "time from a request's headers until its response is handed to the system, whether its client is there or gone",
    ["verb"],
    buckets=(0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.007, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5),
)

_Verb = Callable[[bytes], Awaitable[bytes]]


@asynccontextmanager
async def serve(
    settings: Extender, selector: Selector, health: Health, *, limits: Limits | None = None
) -> AsyncIterator[str]:
    """Serve within a context.

    Args:
        settings: Address, TLS files and sizes.
        selector: Decides.
        health: Health that `/healthz` shows.
        limits: Limits for clients; default: those of `Limits`.

    Yields:
        The address, as in `urlPrefix` of the scheduler's configuration.

    Raises:
        SettingsError: The server cannot listen there, cannot use a TLS file, or must not serve anonymous clients.
    """
    access.check(settings)
    identity, limits = tls.identity(files(settings)), limits or Limits()
    loop = asyncio.get_running_loop()
    service = _Service(settings, selector, health)

    def request(*parts: Any) -> web.BaseRequest:
        return web.BaseRequest(*(*parts, loop), client_max_size=settings.body_bytes)

    server = web.Server(service.answer, request_factory=request)
    address = listener.Address("extender", settings.host, settings.port)
    try:
        async with listener.listen(server, address, limits, identity, service.refused) as root:
            yield f"{root}{PREFIX}"
    finally:
        await server.shutdown(_CLOSE_SECONDS)


def files(settings: Extender) -> tls.Files:
    """Return the TLS files of the settings."""
    return tls.Files("extender", settings.tls_cert, settings.tls_key, settings.tls_client_ca)


class _Refusal(Exception):
    """A request that the server refuses."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


class _Service:
    """Routes requests to the selector."""

    def __init__(self, settings: Extender, selector: Selector, health: Health) -> None:
        self._settings, self._selector, self._health = settings, selector, health
        self._logged: set[tuple[str, str, int]] = set()
        self._verbs: dict[str, _Verb] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
            "bind": self._bind,
        }
        self._paths = {f"{prefix}/{verb}": verb for prefix in ("", PREFIX) for verb in self._verbs}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, and count it."""
        began = time.perf_counter()
        connection, verb = request.protocol, self._paths.get(request.path, "other")
        assert isinstance(connection, Connection)
        if connection.idle:  # a pipelined request, whose bytes came with the one before
            connection.read()
        try:
            response = await self._answer(request, connection, verb)
        except _Refusal as refusal:
            response = _text_response(refusal.status, refusal.text, refusal.headers)
        connection.write()
        status = str(response.status)
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            status = "gone"
        REQUESTS.labels(verb, status).inc()
        if verb != "other":
            SECONDS.labels(verb).observe(time.perf_counter() - began)
        return response

    async def _answer(self, request: web.BaseRequest, connection: Connection, verb: str) -> web.Response:
        if verb == "other":
            return self._other(request)
        if request.method != "POST":
            raise _Refusal(405, f"{verb} is asked with POST", {"Allow": "POST"})
        if "Origin" in request.headers:  # a web page of a stranger could otherwise reserve through a browser
            raise _Refusal(403, f"{verb}: the scheduler asks, and no web page")
        body = await self._body(request, verb)
        connection.work()
        try:
            content = await self._verbs[verb](body)
        except wire.Malformed as malformed:
            log.debug("request.refused", extra={"verb": verb, "reason": str(malformed)})
            raise _Refusal(400, f"{verb}: {malformed}") from malformed
        except Exception as error:
            self._log_once(verb, error)
            raise _Refusal(
                500, f"{verb}: an error in the extender, {type(error).__name__}; its log says more"
            ) from error
        return web.Response(body=content, content_type="application/json")

    def _other(self, request: web.BaseRequest) -> web.Response:
        if request.path != "/healthz":
            verbs = ", ".join(self._verbs)
            raise _Refusal(404, f"nothing is here; POST to {PREFIX}/VERB, VERB out of {verbs}, or GET /healthz")
        if request.method not in ("GET", "HEAD"):
            raise _Refusal(405, "health is asked with GET", {"Allow": "GET, HEAD"})
        if self._health.dead:
            problems = self._health.problems
            raise _Refusal(503, "; ".join(f"{part}: {problems.get(part, '')}" for part in sorted(self._health.dead)))
        return _text_response(200, "ok")

    async def _body(self, request: web.BaseRequest, verb: str) -> bytes:
        most, length = self._settings.body_bytes, request.content_length
        large = _Refusal(
            413,
            f"{verb}: the body has more than {most} bytes; raise SPAZIO_EXTENDER_BODY_BYTES, or set nodeCacheCapable",
        )
        if length is not None and length > most:
            raise large
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise large from None
        except web.RequestPayloadError as error:
            raise _Refusal(400, f"{verb}: the body is broken off: {error}") from error
        except _GONE as error:
            raise _Refusal(400, f"{verb}: the client is gone") from error

    async def _filter(self, body: bytes) -> bytes:
        asked = wire.question(body)
        try:
            answer = await self._selector.filter(asked.pod, asked.names)
        except ValueError as error:
            return wire.unanswered(str(error) or repr(error))
        return wire.filtered(asked, answer)

    async def _prioritize(self, body: bytes) -> bytes:
        asked = wire.question(body)
        try:
            scores = await self._selector.prioritize(asked.pod, asked.names)
        except ValueError as error:
            raise wire.Malformed(str(error)) from error
        return wire.scored(scores)

    async def _preempt(self, body: bytes) -> bytes:
        asked = wire.preemption(body)
        try:
            victims = await self._selector.preempt(asked.pod, asked.victims)
        except ValueError as error:
            raise wire.Malformed(str(error)) from error
        return wire.preempted(asked, victims)

    async def _bind(self, body: bytes) -> bytes:
        asked = wire.binding(body)
        if not self._settings.bind:
            return wire.bound(_NO_BIND)
        try:
            return wire.bound(await self._selector.bind(asked.namespace, asked.name, asked.uid, asked.node))
        except ValueError as error:
            return wire.bound(str(error) or repr(error))

    def refused(self, status: int) -> None:
        """Count a response to malformed HTTP."""
        REQUESTS.labels("other", str(status)).inc()

    def _log_once(self, verb: str, error: Exception) -> None:
        """Log an error with its trace the first time that it occurs at a line; the metrics count all."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        error_site = (verb, type(error).__name__, 0 if trace is None else trace.tb_lineno)
        if error_site not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(error_site)
            log.error("request.failed", extra={"verb": verb}, exc_info=error)


def _text_response(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=headers)
