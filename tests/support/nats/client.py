"""The real client, with a pipe to a server in memory where its socket would be."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats.aio.client import Srv
from nats.aio.transport import Transport

from bus import connection
from tests.support.nats.server import Server
from tests.support.nats.session import Session

_RECONNECT_SECONDS = 0.05


class Wire(Transport):
    """The client's side of a connection to a server in memory.

    Attributes:
        severed: It never connects again.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._session: Session | None = None
        self._arrived = bytearray()
        self._ended = False
        self._news = asyncio.Event()
        self.severed = False

    def __bool__(self) -> bool:
        return True

    async def connect(self, uri: Any, buffer_size: int, connect_timeout: int) -> None:  # the client's
        """Connect to the server, wherever the address points."""
        if self.severed:
            raise ConnectionRefusedError("this connection is broken for good")
        self.close()
        self._arrived.clear()
        self._ended = False
        self._news = asyncio.Event()
        self._session = self._server.accept(self._receive, self._lose)

    async def connect_tls(self, *_: object, **__: object) -> None:
        """Refuse; there is nobody to hide from."""
        raise ConnectionRefusedError("a server in memory has no TLS")

    @property
    def session(self) -> Session | None:
        """The server's side."""
        return self._session

    def _receive(self, data: bytes) -> None:
        self._arrived += data
        self._news.set()

    def _lose(self) -> None:
        self._ended = True
        self._news.set()

    def write(self, payload: bytes) -> None:
        """Send bytes; they are lost where the connection is."""
        if self._session is not None and not self._ended:
            self._session.inbound.send(bytes(payload))

    def writelines(self, payload: list[bytes]) -> None:
        """Send bytes in pieces."""
        self.write(b"".join(payload))

    async def read(self, buffer_size: int) -> bytes:
        """Wait for bytes; nothing: the connection has ended."""
        while not self._arrived and not self._ended:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._arrived[:buffer_size])
        del self._arrived[:buffer_size]
        return data

    async def readline(self) -> bytes:
        """Wait for a line; nothing: the connection has ended."""
        while (end := self._arrived.find(b"\n")) < 0 and not self._ended:
            self._news.clear()
            await self._news.wait()
        data = bytes(self._arrived[: end + 1])
        del self._arrived[: end + 1]
        return data

    async def drain(self) -> None:
        """Raise if the connection has ended."""
        if self._ended:
            raise ConnectionResetError("the server in memory has closed the connection")

    async def wait_closed(self) -> None:
        """Return; `close` has done everything."""

    def close(self) -> None:
        """End the connection."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def at_eof(self) -> bool:
        """Tell whether the connection has ended and everything is read."""
        return self._ended and not self._arrived


class Connection(connection.Connection):
    """A connection to a server in memory."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._wire = Wire(server)

    @property
    def session(self) -> Session:
        """The server's side, to break or hold up this connection alone.

        Raises:
            ConnectionError: It is broken already.
        """
        if self._wire.session is None:
            raise ConnectionError("not connected")
        return self._wire.session

    def sever(self) -> None:
        """Break the connection for good, as the death of the client's process does."""
        self._wire.severed = True
        self._wire.close()

    async def _connect_to_server(self, s: Srv) -> None:
        self._transport = self._wire
        await super()._connect_to_server(s)


@asynccontextmanager
async def connect(server: Server, name: str = "memory") -> AsyncIterator[Connection]:
    """Hold a connection for the length of a block; it is found again after every outage."""
    client = Connection(server)

    async def ignore(_: Exception) -> None:
        """Outages are what this server is for."""

    await client.connect(
        "nats://memory:4222",
        name=name,
        error_cb=ignore,
        reconnect_time_wait=_RECONNECT_SECONDS,  # type: ignore[arg-type] # any number works
        max_reconnect_attempts=-1,
        ping_interval=10,
    )
    try:
        yield client
    finally:
        with contextlib.suppress(OSError):  # of a connection that is broken
            await client.close()
