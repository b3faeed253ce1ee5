"""The connection of a service: it reconnects after every outage, and does not stay connected without being served.

A server that refuses the user at the first attempt ends the start, since waiting would not help. Refused later, as
when a credential is revoked or a server reloads, the client goes on trying, and `refusal` says why; it reads its
credential and TLS files again each time, so a rotated one is used at once.

By default nats-py gives up after 60 attempts and detects a dead server only after minutes; both are changed here. An
exception in one of its callbacks would stop reconnecting, so the callbacks only log and count.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter, Gauge

from bus.access import credential, refusal, trust
from bus.access.credential import Credential
from bus.link import Connection, NoTls, cancellable, cancellations
from schemas.settings import Settings

__all__ = [
    "CONNECTED",
    "DISCONNECTS",
    "ERRORS",
    "MINIMUM_SERVER",
    "Closed",
    "Connection",
    "Refused",
    "ServerTooOld",
    "Unacceptable",
    "alive",
    "connect",
    "dial",
    "probe",
    "unless_closed",
]

log = logging.getLogger(__name__)

MINIMUM_SERVER = (2, 14)
_RECONNECT_SECONDS = 0.2

CONNECTED = Gauge("spazio_nats_connected", "1 while the connection to NATS is up")
DISCONNECTS = Counter("spazio_nats_disconnects_total", "times that the connection to NATS was lost")
ERRORS = Counter("spazio_nats_errors_total", "asynchronous errors that the server or the client reported")


class Closed(RuntimeError):
    """The client has given up for good."""


class Unacceptable(RuntimeError):
    """Client and server do not go together; the message says why, and how to fix it."""


class ServerTooOld(Unacceptable):
    """The server lacks features that exactly-once folds need."""


class Refused(Unacceptable):
    """The server does not accept the user, or the user's files cannot be used."""


Note = Callable[[Exception], object]


def _forget(_error: Exception) -> None:
    """Do nothing with an error."""


class _Callbacks:
    """Callbacks of a connection, which log and count.

    Args:
        client: The connection.
        url: Address of the server, without credentials.
        own: Credential of the user, if it has one.
        note: What to do with each error, as that of an attempt to connect.
    """

    def __init__(self, client: Connection, url: str, own: Credential | None, note: Note) -> None:
        self._client, self._url, self._own, self._note, self._last_error = client, url, own, note, ""
        self._cancellations = cancellations()
        self.starting = True

    async def disconnected(self) -> None:
        if not self._client.is_closed:
            CONNECTED.set(0)
            DISCONNECTS.inc()
            log.warning("nats.disconnected", extra={"url": self._url})

    async def reconnected(self) -> None:
        self._last_error = self._client.refusal = ""
        self._client.denials.clear()
        CONNECTED.set(1)
        log.info("nats.reconnected", extra={"url": self._url})

    async def closed(self) -> None:
        self._client.closed.set()

    async def failed(self, error: Exception) -> None:
        ERRORS.inc()
        self._note(error)
        if self.starting and cancellations() > self._cancellations:  # taken for the end of an attempt
            raise asyncio.CancelledError
        if isinstance(error, NoTls) and self.starting:
            raise Refused(f"{self._url}: {error}")
        if refusal.refuses(error):
            self._client.refusal = refusal.sentence(self._own, self._url, error)
            if self.starting:
                raise Refused(self._client.refusal)  # ends the attempts to connect
            error = nats.errors.Error(self._client.refusal)
        elif (denied := self._client.denials.take(error, self._own)) is not None:
            if denied:
                log.error("nats.denied", extra={"reason": denied, "url": self._url})
            return
        # One line per outage, not one for each of its reconnect attempts.
        level = logging.DEBUG if self._last_error == str(error) else logging.WARNING
        self._last_error = str(error)
        log.log(level, "nats.error_reported", extra={"reason": repr(error), "url": self._url})


async def dial(settings: Settings, name: str, note: Note = _forget) -> Connection:
    """Connect, waiting for the server as long as it takes; the waiting is logged once.

    Args:
        settings: Server address and timeouts.
        name: Name of this connection in the server's monitoring.
        note: What to do with each error, as that of an attempt to connect.

    Raises:
        ServerTooOld: The server answers, but is older than `MINIMUM_SERVER`.
        Refused: The server does not accept the user, or a file of the connection cannot be used.
    """
    client, own, access = _client(settings)
    callbacks = _Callbacks(client, settings.nats_shown, own, note)
    try:
        with cancellable():
            await client.connect(
                settings.nats_url,
                name=name,
                error_cb=callbacks.failed,
                disconnected_cb=callbacks.disconnected,
                reconnected_cb=callbacks.reconnected,
                closed_cb=callbacks.closed,
                connect_timeout=settings.nats.connect_timeout_seconds,  # type: ignore[arg-type] # any number works
                reconnect_time_wait=_RECONNECT_SECONDS,  # type: ignore[arg-type] # any number works
                max_reconnect_attempts=-1,
                ping_interval=settings.nats.ping_interval_seconds,
                **access,
            )
    except (Refused, asyncio.CancelledError):
        client.abort()
        await client.close()
        raise
    callbacks.starting = False
    version = client.connected_server_version
    if (version.major, version.minor) < MINIMUM_SERVER:
        await client.close()
        wanted = ".".join(map(str, MINIMUM_SERVER))
        raise ServerTooOld(f"{settings.nats_shown} runs nats-server {version}; spazio needs {wanted} or newer")
    CONNECTED.set(1)
    return client


def _client(settings: Settings) -> tuple[Connection, Credential | None, dict[str, Any]]:
    """Return a client that is not connected yet, its credential, and its options for credential and TLS.

    Raises:
        Refused: A file cannot be used.
    """
    options: dict[str, Any] = {}
    try:
        trusted = trust.trust(settings.nats)
        own = None if settings.nats.credentials is None else Credential(settings.nats.credentials)
    except credential.Unusable as error:
        raise Refused(str(error)) from error
    if trusted is not None:
        options["tls"] = trusted.context()
    if own is not None:
        options |= {"user_jwt_cb": own.jwt, "signature_cb": own.sign, "inbox_prefix": own.inbox}
    verified = trusted is not None or settings.nats_url.startswith("tls://")
    return Connection(own, trusted, verified=verified), own, options


@asynccontextmanager
async def connect(settings: Settings, name: str) -> AsyncIterator[Connection]:
    """Hold a connection for the length of a block, then send buffered data and close it."""
    client = await dial(settings, name)
    try:
        yield client
    finally:
        CONNECTED.set(0)
        try:
            async with asyncio.timeout(1):
                await client.flush()
        except (nats.errors.Error, TimeoutError):
            log.warning("nats.flush_failed")
            client.abort()
        with contextlib.suppress(OSError):  # raised if the connection was dropped
            await client.close()


@asynccontextmanager
async def probe(settings: Settings, name: str) -> AsyncIterator[Client]:
    """Hold a connection without reconnecting, to inspect a server that may refuse it.

    Raises:
        BusError: The server ends the connection; also OSError: no server answers.
        Refused: The server does not accept the user, or a file of the connection cannot be used.
    """
    client, own, access = _client(settings)
    try:
        try:
            await client.connect(settings.nats_url, name=name, allow_reconnect=False, error_cb=_quiet, **access)
        except nats.errors.Error as error:
            if isinstance(error, NoTls):
                raise Refused(f"{settings.nats_shown}: {error}") from error
            if refusal.refuses(error):
                raise Refused(refusal.sentence(own, settings.nats_shown, error)) from error
            raise
        yield client
    finally:
        await client.close()


async def _quiet(_error: Exception) -> None:
    """Do not log: `probe` raises the error."""


async def unless_closed(client: Connection) -> None:
    """Wait until the client gives up.

    Raises:
        Closed: The client has given up; the process should end and be restarted.
    """
    await client.closed.wait()
    raise Closed("the NATS client has closed its connection for good")


async def alive(client: Client, timeout_seconds: float) -> bool:
    """Tell whether the server answers now; `is_connected` is also true when the reader has died."""
    if not client.is_connected:  # a ping would also disturb the handshake
        return False
    try:
        async with asyncio.timeout(timeout_seconds):
            await client.rtt()
    except (nats.errors.Error, TimeoutError, OSError):
        return False
    return True
