"""The connection of a service: it reconnects after every outage, and does not stay connected without being served.

By default nats-py gives up after 60 attempts and detects a dead server only after minutes; both are changed here. An
exception in one of its callbacks would stop reconnecting, so the callbacks only log and count. `Connection` fixes the
known cases in which the client receives nothing although it reports to be connected; `bus.watchdog` detects the others.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from prometheus_client import Counter, Gauge

from bus.reading.tap import Parser, Tapped
from schemas.settings import Settings

log = logging.getLogger(__name__)

MINIMUM_SERVER = (2, 14)
_RECONNECT_SECONDS = 0.2

CONNECTED = Gauge("spazio_nats_connected", "1 while the connection to NATS is up")
DISCONNECTS = Counter("spazio_nats_disconnects_total", "times that the connection to NATS was lost")
READERS = Counter("spazio_nats_readers_ended_total", "times that the client's reader ended on its own")
ERRORS = Counter("spazio_nats_errors_total", "asynchronous errors that the server or the client reported")


class _CountingParser(Parser):
    """The client's parser, which also counts the pieces of data that arrive from the server."""

    pieces = 0

    async def parse(self, data: bytes = b"") -> None:
        self.pieces += 1
        await super().parse(data)


class Connection(Tapped):
    """The client, with fixes for bytes from outside and hanging servers that could stop it.

    Attributes:
        closed: Set once the client has given up for good; only a new connection helps then.
        attempted: Time of the event loop at which it last began to connect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()
        self.attempted = 0.0
        self._ps: _CountingParser = _CountingParser(self)

    @property
    def heard(self) -> int:
        """Number of pieces of data that have arrived from the server; it grows while the connection works."""
        return self._ps.pieces

    def abort(self) -> None:
        """Drop the connection now. Closing it would first wait for a hanging server to accept the buffered data."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        # After an attempt that failed half way, the client keeps its socket, and a reader that would consume bytes of
        # the next connection.
        self.abort()
        if self._reading_task is not None and self._reading_task is not asyncio.current_task():
            self._reading_task.cancel()
        self.attempted = asyncio.get_running_loop().time()
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        self.attempted = asyncio.get_running_loop().time()
        self.abort()
        # Requests on the broken connection get no answer any more; failing them now lets callers retry sooner.
        for waiting in list(self._resp_map.values()):
            if not waiting.done():
                waiting.set_exception(nats.errors.ConnectionReconnectingError())
        try:
            await super()._attempt_reconnect()
        except Exception as error:  # noqa: BLE001 # after any exception the client would never reconnect
            log.warning("nats.reconnect_failed", extra={"reason": repr(error)})
            await self.close()

    async def _read_loop(self) -> None:
        await super()._read_loop()
        # The loop also ends without a log message when anything in it raises; then nothing would be received any more.
        current = self._reading_task is asyncio.current_task()
        if current and self.is_connected and not asyncio.get_running_loop().is_closed():
            READERS.inc()
            log.warning("nats.reader_ended")
            await self.force_reconnect()

    async def request(self, *arguments: Any, **named: Any) -> Msg:
        """Send a request and wait for its answer, as `Client.request`."""
        with _cancellable():
            return await super().request(*arguments, **named)

    async def flush(self, *arguments: Any, **named: Any) -> None:
        """Wait until the server has received everything sent, as `Client.flush`."""
        with _cancellable():
            await super().flush(*arguments, **named)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        with _cancellable():
            return await super()._flush_pending(force_flush)

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The client would send the ping ahead of buffered data, so its answer would not confirm that data.
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_pong(self) -> None:
        # A pong whose waiter was cancelled would raise and end the reader.
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
        else:
            await super()._process_pong()

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        # The server forwards subjects that are not UTF-8; the client's own decoding would end its read loop.
        return self.msg_class(
            subject=subject.decode(errors="replace"),
            reply=reply.decode(errors="replace"),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )


@contextmanager
def _cancellable() -> Iterator[None]:
    """Raise a cancellation that something in the block has swallowed; otherwise the cancelled task would go on.

    The client swallows one while it flushes, as does `wait_for` of Python 3.11 if the connection breaks meanwhile.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class Closed(RuntimeError):
    """The client has given up for good."""


class ServerTooOld(RuntimeError):
    """The server lacks features that exactly-once folds need."""


class _Callbacks:
    """Callbacks of a connection, which log and count.

    Args:
        client: The connection.
        url: Address of the server, without credentials.
    """

    def __init__(self, client: Connection, url: str) -> None:
        self._client, self._url, self._last_error = client, url, ""

    async def disconnected(self) -> None:
        if not self._client.is_closed:
            CONNECTED.set(0)
            DISCONNECTS.inc()
            log.warning("nats.disconnected", extra={"url": self._url})

    async def reconnected(self) -> None:
        self._last_error = ""
        CONNECTED.set(1)
        log.info("nats.reconnected", extra={"url": self._url})

    async def closed(self) -> None:
        self._client.closed.set()

    async def failed(self, error: Exception) -> None:
        ERRORS.inc()
        # One line per outage, not one for each of its reconnect attempts.
        level = logging.DEBUG if self._last_error == str(error) else logging.WARNING
        self._last_error = str(error)
        log.log(level, "nats.error_reported", extra={"reason": repr(error), "url": self._url})


async def dial(settings: Settings, name: str) -> Connection:
    """Connect, waiting for the server as long as it takes; the waiting is logged once.

    Args:
        settings: Server address and timeouts.
        name: Name of this connection in the server's monitoring.

    Raises:
        ServerTooOld: The server answers, but is older than `MINIMUM_SERVER`.
    """
    client = Connection()
    callbacks = _Callbacks(client, settings.nats_shown)
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
    )
    version = client.connected_server_version
    if (version.major, version.minor) < MINIMUM_SERVER:
        await client.close()
        wanted = ".".join(map(str, MINIMUM_SERVER))
        raise ServerTooOld(f"{settings.nats_shown} runs nats-server {version}; spazio needs {wanted} or newer")
    CONNECTED.set(1)
    return client


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
        BusError: The server refuses the connection; also OSError: no server answers.
    """
    client = Client()
    try:
        await client.connect(settings.nats_url, name=name, allow_reconnect=False, error_cb=_quiet)
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
