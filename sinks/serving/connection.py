"""Client connections with deadlines.

The server closes connections that send or read a request slowly. The number of connections is bounded; beyond it, the
server closes the connection with the earliest deadline, so that idle connections do not block new ones. While the
server works for a connection it has none: a new one is closed before it. One timer (`listener`) checks all connections,
so a request only stores a time.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from prometheus_client import Counter, Gauge

log = logging.getLogger(__name__)

_LINGER_SECONDS = 2.0

CONNECTIONS = Gauge("spazio_server_connections", "open connections to the extender, dashboard or external metrics")
CUT = Counter("spazio_server_cut_total", "connections that the server closed: slow, idle, or too many", ["reason"])


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for clients.

    Attributes:
        read_seconds: Longest time from the first byte of a request to its last.
        write_seconds: Longest time until the client has read a response.
        idle_seconds: Longest time without a request; more than the 90 seconds of Go's clients.
        connections: Most open connections.
    """

    read_seconds: float = 10.0
    write_seconds: float = 10.0
    idle_seconds: float = 120.0
    connections: int = 256


class Connection(web.RequestHandler):
    """One connection and its deadline."""

    __slots__ = ("_begun", "_limits", "_refused", "deadline", "idle")

    def __init__(
        self, server: web.Server, limits: Limits, refused: Callable[[int], None], begun: Callable[[int], None]
    ) -> None:
        """Create the handler of a connection.

        Args:
            server: Answers its requests.
            limits: Limits for the client.
            refused: Receives the status of each response to malformed HTTP.
            begun: Receives the file descriptor when the connection is there, after the TLS handshake.
        """
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # aiohttp accepts None, but its annotation lacks it
            keepalive_timeout=limits.idle_seconds,
            lingering_time=min(_LINGER_SECONDS, limits.read_seconds),
        )
        self._limits, self._refused, self._begun = limits, refused, begun
        self.deadline, self.idle = math.inf, True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the idle deadline, and close another connection if there are too many."""
        super().connection_made(transport)
        self._begun(transport.get_extra_info("socket").fileno())
        CONNECTIONS.inc()
        self.rest()
        assert self._manager is not None
        connections = [each for each in self._manager.connections if isinstance(each, Connection)]
        if len(connections) > self._limits.connections:
            min(connections, key=lambda connection: connection.deadline).cut("many")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count the closed connection."""
        CONNECTIONS.dec()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass on bytes of a request; its first byte starts the read deadline."""
        if self.idle:
            self.read()
        super().data_received(data)

    def rest(self) -> None:
        """Start the idle deadline, until the next request."""
        self.idle, self.deadline = True, self._loop.time() + self._limits.idle_seconds

    def read(self) -> None:
        """Start the read deadline of a request."""
        self.idle, self.deadline = False, self._loop.time() + self._limits.read_seconds

    def work(self) -> None:
        """Suspend the deadline while the server works."""
        self.deadline = math.inf

    def write(self) -> None:
        """Start the write deadline of the response."""
        self.deadline = self._loop.time() + self._limits.write_seconds

    def cut(self, reason: str) -> None:
        """Abort the connection."""
        CUT.labels(reason).inc()
        log.debug("connection.aborted", extra={"client": self.peername, "reason": reason})
        self.deadline = math.inf
        if self.transport is not None:
            self.transport.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response within the write deadline."""
        self.write()
        finished = await super().finish_response(request, resp, start_time)
        self.rest()
        return finished

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer malformed HTTP; aiohttp's own handler would log a trace for each such request.

        It does so for errors of a handler, which are ours.
        """
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        log.debug("request.malformed", extra={"client": request.remote, "reason": repr(exc)})
        self._refused(status)
        response = web.Response(status=status, text=f"{message or 'this is no HTTP request'}\n")
        response.force_close()
        return response
