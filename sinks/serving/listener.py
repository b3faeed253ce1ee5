"""Listens for an aiohttp server within the limits of `connection`, and takes up renewed certificates.

asyncio tells a protocol of its connection only after the TLS handshake, so the handshakes that have begun are counted
where connections are accepted: of too many, the oldest ends.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from prometheus_client import Gauge

from bus.access import local
from schemas.settings import SettingsError
from sinks.serving.connection import CUT, Connection, Limits
from sinks.serving.tls import Identity

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0

KEPT = Gauge("spazio_server_certificate_kept", "1: files of TLS have changed and cannot be used; the old ones stay")


class Address(NamedTuple):
    """Where a server listens.

    Attributes:
        owner: What the settings belong to, as in `extender`; errors name it.
        host: Name or number of an interface.
        port: Port; 0: any free one.
    """

    owner: str
    host: str
    port: int


@asynccontextmanager
async def listen(
    server: web.Server,
    address: Address,
    limits: Limits,
    identity: Identity | None,
    refused: Callable[[int], None],
) -> AsyncIterator[str]:
    """Listen within a context.

    Args:
        server: Answers requests.
        address: Where.
        limits: Limits for clients.
        identity: Certificate; None: plain HTTP.
        refused: Receives the status of each response to malformed HTTP.

    Yields:
        URL of the root for programs of this machine, without a slash at its end.

    Raises:
        SettingsError: The address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    handshakes = _Handshakes(limits.connections)
    sockets = await _bound(address, None if identity is None else handshakes)

    def connection() -> Connection:
        return Connection(server, limits, refused, handshakes.end)

    async with contextlib.AsyncExitStack() as stack:
        for each in sockets:
            stack.enter_context(each)
        for each in sockets:
            listener = await loop.create_server(
                connection,
                sock=each,
                ssl=None if identity is None else identity.context,
                ssl_handshake_timeout=None if identity is None else limits.read_seconds,
            )
            stack.callback(listener.close)
        guard = _Guard(server, limits, identity)
        stack.callback(guard.stop)
        host, port = sockets[0].getsockname()[:2]
        yield f"http{'s' if identity else ''}://{local.url_host(host)}:{port}"


class _Handshakes:
    """Accepted connections without a protocol, the oldest first."""

    def __init__(self, most: int) -> None:
        self._most, self._begun = most, dict[int, socket.socket]()

    def begin(self, accepted: socket.socket) -> None:
        """Count one; of too many, the oldest that is still open ends."""
        self._begun.pop(accepted.fileno(), None)  # an older one with this number was closed
        self._begun[accepted.fileno()] = accepted
        if len(self._begun) <= self._most:
            return
        self._begun = {number: each for number, each in self._begun.items() if each.fileno() == number}
        if len(self._begun) > self._most:
            CUT.labels("many").inc()
            with contextlib.suppress(OSError):  # the client is gone
                self._begun.pop(next(iter(self._begun))).shutdown(socket.SHUT_RDWR)

    def end(self, number: int) -> None:
        """Count a connection, by its file descriptor, no more: its protocol has it."""
        self._begun.pop(number, None)


class _Listener(socket.socket):
    """A listening socket that reports what it accepts."""

    handshakes: _Handshakes | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        accepted, client = super().accept()
        if self.handshakes is not None:
            self.handshakes.begin(accepted)
        return accepted, client


async def _bound(address: Address, handshakes: _Handshakes | None) -> list[_Listener]:
    """Return a socket for each interface that the host names.

    Raises:
        SettingsError: One cannot be had.
    """
    owner, host, port = address
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with contextlib.ExitStack() as stack:
            endpoints = dict.fromkeys((info[0], info[4]) for info in infos)
            listeners = [stack.enter_context(_opened(family, endpoint, handshakes)) for family, endpoint in endpoints]
            stack.pop_all()
            return listeners
    except OSError as error:
        option = f"--{owner.replace(' ', '-')}"
        raise SettingsError(
            [
                f"{owner}: {host} port {port} cannot be listened on: {error.strerror or error}; choose others with "
                f"{option}-host and {option}-port, port 0 takes any"
            ]
        ) from error


def _opened(family: int, endpoint: Any, handshakes: _Handshakes | None) -> _Listener:
    listener = _Listener(family, socket.SOCK_STREAM)
    try:
        listener.handshakes = handshakes
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # IPv4 has a socket of its own
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(endpoint)
    except OSError:
        listener.close()
        raise
    return listener


class _Guard:
    """Closes connections past their deadline, and renews the certificate, while the server runs."""

    def __init__(self, server: web.Server, limits: Limits, identity: Identity | None) -> None:
        """Start the timer."""
        self._server, self._identity, self._complaint = server, identity, ""
        self._seconds = min(_LOOK_SECONDS, limits.read_seconds, limits.write_seconds)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self._look)

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._look)
        now = self._loop.time()
        for connection in self._server.connections:
            if isinstance(connection, Connection) and connection.deadline < now:
                connection.cut("idle" if connection.idle else "slow")
        if self._identity is not None:
            self._renewed(self._identity.renew())

    def _renewed(self, complaint: str) -> None:
        """Log each error of a renewal once."""
        KEPT.set(bool(complaint))
        if complaint not in ("", self._complaint):
            log.error("certificate.renewal_failed", extra={"reason": complaint})
        self._complaint = complaint
