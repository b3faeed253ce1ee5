"""Connections of clients, each with a time by which it has to have done the next thing.

A scheduler is quick; whoever sends or reads a request slowly is cut off. There is a bound on connections, and when it
is met the one whose time is up first gives way, so that idle ones keep nobody out. One timer looks at all of them,
which costs a request no more than writing down a time.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import Counter, Gauge

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_LINGER_SECONDS = 2.0

CONNECTIONS = Gauge("spazio_extender_connections", "open connections to the extender")
CUT = Counter("spazio_extender_cut_total", "connections cut off: slow, idle, or one too many", ["reason"])


@dataclass(frozen=True, slots=True)
class Limits:
    """What a client may take.

    Attributes:
        read_seconds: A request has to be whole so long after its first byte.
        write_seconds: An answer has to be taken within so long.
        idle_seconds: A connection is kept so long without a request; more than the 90 seconds of Go's clients.
        connections: So many may be open.
    """

    read_seconds: float = 10.0
    write_seconds: float = 10.0
    idle_seconds: float = 120.0
    connections: int = 256


class Connection(web.RequestHandler):
    """One connection, and until when it has to have done the next thing."""

    __slots__ = ("_limits", "_refused", "deadline", "idle")

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, limits: Limits, refused: Callable[[int], None]
    ) -> None:
        """Describe it.

        Args:
            server: Answers its requests.
            loop: Runs it.
            limits: What the client may take.
            refused: Told the status with which something that is no HTTP was answered.
        """
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # aiohttp allows it and does not say so
            keepalive_timeout=limits.idle_seconds,
            lingering_time=min(_LINGER_SECONDS, limits.read_seconds),
        )
        self._limits, self._refused = limits, refused
        self.deadline, self.idle = math.inf, True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and make room if there are too many."""
        super().connection_made(transport)
        CONNECTIONS.inc()
        self.rest()
        assert self._manager is not None
        connections = [one for one in self._manager.connections if isinstance(one, Connection)]
        if len(connections) > self._limits.connections:
            min(connections, key=lambda one: one.deadline).cut("many")

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        CONNECTIONS.dec()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; with the first of them its time begins."""
        if self.idle:
            self.read()
        super().data_received(data)

    def rest(self) -> None:
        """Wait for a request."""
        self.idle, self.deadline = True, self._loop.time() + self._limits.idle_seconds

    def read(self) -> None:
        """Wait for the rest of a request."""
        self.idle, self.deadline = False, self._loop.time() + self._limits.read_seconds

    def work(self) -> None:
        """Wait for nothing of the client's."""
        self.deadline = math.inf

    def write(self) -> None:
        """Wait until the answer is taken."""
        self.deadline = self._loop.time() + self._limits.write_seconds

    def cut(self, reason: str) -> None:
        """Close at once."""
        CUT.labels(reason).inc()
        log.debug("extender.cut", extra={"client": self.peername, "reason": reason})
        self.deadline = math.inf
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer what is no HTTP. aiohttp would log each such request with a trace."""
        log.debug("extender.no_http", extra={"client": request.remote, "reason": repr(exc)})
        self._refused(status)
        response = web.Response(status=status, text=f"{message or 'this is no HTTP request'}\n")
        response.force_close()
        return response


class Guard:
    """Looks now and then for connections that are slow, for as long as the server runs."""

    def __init__(self, server: web.Server, limits: Limits, also: Callable[[], None]) -> None:
        """Begin.

        Args:
            server: Has the connections.
            limits: What clients may take.
            also: Called each time, too.
        """
        self._server, self._also = server, also
        self._seconds = min(_LOOK_SECONDS, limits.read_seconds, limits.write_seconds)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self._look)

    def stop(self) -> None:
        """End."""
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._look)
        now = self._loop.time()
        for connection in self._server.connections:
            if isinstance(connection, Connection) and connection.deadline < now:
                connection.cut("idle" if connection.idle else "slow")
        self._also()
