"""Connections and servers that are made to hang or die, for tests of what notices it."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bus import connection, watchdog
from bus.connection import Connection
from bus.health import Health
from schemas.settings import Settings
from tests.conftest import NatsServer


def quick(settings: Settings, url: str | None = None) -> Settings:
    """Ask often, so that a test is short; everything else scales with it."""
    nats = settings.nats.model_copy(
        update={"probe_seconds": 0.3, "connect_timeout_seconds": 0.5, "url": url or settings.nats.url}
    )
    return settings.model_copy(update={"nats": nats})


def stop(server: NatsServer) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.005)


def go_on(server: NatsServer) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGCONT)


class Proxy:
    """Passes bytes between a client and the server, until it has to swallow them.

    Attributes:
        passing: Bytes that each new connection passes on in each direction before it swallows the rest; None: all.
        asked: What clients have sent.
    """

    def __init__(self, port: int) -> None:
        self._port, self.url = port, ""
        self.passing: int | None = None
        self.swallows = self.deaf = False  # the first connection: throws away what it reads, or does not even read
        self.connections, self.asked = 0, b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        with contextlib.suppress(OSError):
            await asyncio.gather(self._pump(reader, ours, number, client=True), self._pump(theirs, writer, number))

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, number: int, *, client: bool = False
    ) -> None:
        left = self.passing
        try:
            while piece := await source.read(4096):
                self.asked += piece if client else b""
                if self.deaf and number == 1:
                    await asyncio.sleep(60)
                if self.swallows and number == 1:
                    continue
                if left is not None:
                    piece, left = piece[:left], max(0, left - len(piece))  # the rest is swallowed
                sink.write(piece)
                await sink.drain()
        finally:
            sink.close()


@asynccontextmanager
async def proxy(server: NatsServer) -> AsyncIterator[Proxy]:
    made = Proxy(server.port)
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        listening.close()


@asynccontextmanager
async def guarded(settings: Settings) -> AsyncIterator[tuple[Connection, Health, asyncio.Task[None]]]:
    health = Health()
    async with connection.connect(settings, "test") as client:
        watching = asyncio.create_task(watchdog.watch(client, health, settings.nats))
        try:
            yield client, health, watching
        finally:
            watching.cancel()


async def answers(client: Connection, seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not await connection.alive(client, 0.3):  # noqa: ASYNC110 # the other end is a process
            await asyncio.sleep(0.05)
