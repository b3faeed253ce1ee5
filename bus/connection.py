"""One connection a service: found again after every outage, and never silently deaf.

nats-py gives up after 60 attempts and notices a dead server after minutes unless told otherwise; both are set here.
An exception in one of its callbacks would end reconnecting for good, so the callbacks only log and count.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from prometheus_client import Counter, Gauge

from schemas.settings import Settings

log = logging.getLogger(__name__)

MINIMUM_SERVER = (2, 14)
_RECONNECT_SECONDS = 0.2

CONNECTED = Gauge("spazio_nats_connected", "1 while the connection to NATS is up")
DISCONNECTS = Counter("spazio_nats_disconnects_total", "times that the connection to NATS was lost")
ERRORS = Counter("spazio_nats_errors_total", "asynchronous errors that the server or the client reported")


class Connection(Client):
    """The client, mended where bytes from outside could stop it.

    Attributes:
        closed: Set once the client has given up for good; nothing but a new connection helps then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed = asyncio.Event()

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
        await client.close()


async def unless_closed(client: Connection) -> None:
    """Wait for ever.

    Raises:
        Closed: The client has given up; the process should end and be started again.
    """
    await client.closed.wait()
    raise Closed("the NATS client has closed its connection for good")


async def alive(client: Client, timeout_seconds: float) -> bool:
    """Tell whether the server answers now; `is_connected` also says yes when the reader has died."""
    try:
        async with asyncio.timeout(timeout_seconds):
            await client.rtt()
    except (nats.errors.Error, TimeoutError, OSError):
        return False
    return True
