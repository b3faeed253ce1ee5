"""One connection a service: found again after every outage, and never silently deaf.

nats-py gives up after 60 attempts and notices a dead server after minutes unless told otherwise; both are set here.
An exception in one of its callbacks would end reconnecting for good, so the callbacks only log and count. What else
could leave the client deaf while it calls itself connected is mended in `Connection`, and `bus.watchdog` looks for what
is not known yet.
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


class _Heard(Parser):
    """The client's parser, which also counts the pieces that the server has sent."""

    pieces = 0

    async def parse(self, data: bytes = b"") -> None:
        self.pieces += 1
        await super().parse(data)


class Connection(Tapped):
    """The client, mended where bytes from outside, or a server that hangs, could stop it.

    Attributes:
        closed: Set once the client has given up for good; nothing but a new connection helps then.
        attempted: Time of the event loop at which it last began to connect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()
        self.attempted = 0.0
        self._ps: _Heard = _Heard(self)

    @property
    def heard(self) -> int:
        """Number of pieces that have come from the server: it grows while the connection lives."""
        return self._ps.pieces

    def abort(self) -> None:
        """Drop the connection now. Closing it would first wait until a server that hangs takes what is buffered."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _connect_to_server(self, s: Srv) -> None:
        # After an attempt that failed half way the client keeps its socket, and a reader that would take bytes away
        # from the next one.
        self.abort()
        if self._reading_task is not None and self._reading_task is not asyncio.current_task():
            self._reading_task.cancel()
        self.attempted = asyncio.get_running_loop().time()
        await super()._connect_to_server(s)

    async def _attempt_reconnect(self) -> None:
        self.attempted = asyncio.get_running_loop().time()
        self.abort()
        # What was asked over the connection that broke is answered over it, or never; who asks again asks sooner.
        for waiting in list(self._resp_map.values()):
            if not waiting.done():
                waiting.set_exception(nats.errors.ConnectionReconnectingError())
        try:
            await super()._attempt_reconnect()
        except Exception as error:  # noqa: BLE001 # whatever it is, nobody would ever connect again
            log.warning("nats.given_up", extra={"reason": repr(error)})
            await self.close()

    async def _read_loop(self) -> None:
        await super()._read_loop()
        # It also ends, and says nothing, when anything in it raises; everything would be silent from then on.
        current = self._reading_task is asyncio.current_task()
        if current and self.is_connected and not asyncio.get_running_loop().is_closed():
            READERS.inc()
            log.warning("nats.reader_ended")
            await self.force_reconnect()

    async def request(self, *arguments: Any, **named: Any) -> Msg:
        """Send a request and wait for its answer, as the client does; see there."""
        with _cancellable():
            return await super().request(*arguments, **named)

    async def flush(self, *arguments: Any, **named: Any) -> None:
        """Wait until the server has what was sent, as the client does; see there."""
        with _cancellable():
            await super().flush(*arguments, **named)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        with _cancellable():
            return await super()._flush_pending(force_flush)

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The client sends the ping at once, ahead of what still waits to be sent: its answer would say nothing of that.
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_pong(self) -> None:
        # An answer to somebody who has stopped waiting for it would raise, and end the reader.
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
        else:
            await super()._process_pong()

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        # The server passes on subjects that are no UTF-8; the client's own decoding would end its read loop.
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
    """End the block by a cancellation that something in it has swallowed; whoever was to end would go on.

    The client does so while it flushes, and `wait_for` of Python 3.11 where a connection breaks at the same time.
    """
    task = asyncio.current_task()
    asked = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > asked:
            raise asyncio.CancelledError


class Closed(RuntimeError):
    """The client has given up for good."""


class ServerTooOld(RuntimeError):
    """The server lacks what exactly-once folds need."""


async def dial(settings: Settings, name: str) -> Connection:
    """Connect, waiting for the server as long as it takes; said once while it waits.

    Args:
        settings: Server address and timeouts.
        name: What the server's monitoring calls this connection.

    Raises:
        ServerTooOld: The server answers, but is older than `MINIMUM_SERVER`.
    """
    client, last = Connection(), ""

    async def on_disconnect() -> None:
        if not client.is_closed:
            CONNECTED.set(0)
            DISCONNECTS.inc()
            log.warning("nats.disconnected", extra={"url": settings.nats_shown})

    async def on_reconnect() -> None:
        nonlocal last
        last = ""
        CONNECTED.set(1)
        log.info("nats.reconnected", extra={"url": settings.nats_shown})

    async def on_closed() -> None:
        client.closed.set()

    async def on_error(error: Exception) -> None:
        nonlocal last
        ERRORS.inc()
        # One line for an outage, not one for each of its reconnect attempts.
        level = logging.DEBUG if last == str(error) else logging.WARNING
        last = str(error)
        log.log(level, "nats.error", extra={"reason": repr(error), "url": settings.nats_shown})

    await client.connect(
        settings.nats_url,
        name=name,
        error_cb=on_error,
        disconnected_cb=on_disconnect,
        reconnected_cb=on_reconnect,
        closed_cb=on_closed,
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
    """Hold a connection for the length of a block, then send what is buffered and close it."""
    client = await dial(settings, name)
    try:
        yield client
    finally:
        CONNECTED.set(0)
        try:
            async with asyncio.timeout(1):
                await client.flush()
        except (nats.errors.Error, TimeoutError):
            log.warning("nats.unflushed")
            client.abort()
        with contextlib.suppress(OSError):  # of a connection that is dropped
            await client.close()


@asynccontextmanager
async def probe(settings: Settings, name: str) -> AsyncIterator[Client]:
    """Hold a connection that is given up at the first error, for a look at a server that may not be ours to use.

    Raises:
        BusError: The server refuses; also OSError: none answers.
    """
    client = Client()
    try:
        await client.connect(settings.nats_url, name=name, allow_reconnect=False, error_cb=_quiet)
        yield client
    finally:
        await client.close()


async def _quiet(_error: Exception) -> None:
    """Say nothing: who probes is told by what is raised."""


async def unless_closed(client: Connection) -> None:
    """Wait for ever.

    Raises:
        Closed: The client has given up; the process should end and be started again.
    """
    await client.closed.wait()
    raise Closed("the NATS client has closed its connection for good")


async def alive(client: Client, timeout_seconds: float) -> bool:
    """Tell whether the server answers now; `is_connected` also says yes when the reader has died."""
    if not client.is_connected:  # and a ping would get in the way of the handshake
        return False
    try:
        async with asyncio.timeout(timeout_seconds):
            await client.rtt()
    except (nats.errors.Error, TimeoutError, OSError):
        return False
    return True
