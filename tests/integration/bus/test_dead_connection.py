"""A connection that calls itself connected and is dead: it is noticed, said, and left, by real services."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from bus import connection, stream, watchdog
from bus.connection import DISCONNECTS, Connection
from bus.health import Health
from bus.link import READERS
from schemas import settings as all_settings
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


class Service:
    """A service of spazio as a process."""

    def __init__(self, process: subprocess.Popen[bytes], note: Path) -> None:
        self.process, self._note = process, note

    def page(self, path: str) -> tuple[int, str]:
        try:
            url = json.loads(self._note.read_text())["http"] + path
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, path: str, status: int, seconds: float) -> str:
        """Wait for a page's status and return the page."""
        deadline, response = time.monotonic() + seconds, (0, "")
        while time.monotonic() < deadline:
            response = self.page(path)
            if response[0] == status:
                return response[1]
            time.sleep(0.1)
        raise AssertionError(f"{path} is {response} after {seconds} s")


@contextmanager
def running(settings: Settings, *arguments: str) -> Iterator[Service]:
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    process = subprocess.Popen([sys.executable, "-m", "spazio", *arguments], env=environ, stderr=subprocess.DEVNULL)
    try:
        service = Service(process, settings.data.dir / "run" / f"{arguments[-1]}.json")
        service.until("/readyz", 200, 20)
        yield service
    finally:
        process.kill()
        process.wait()


class Proxy:
    """Passes bytes between a client and the server, until it is told to swallow them.

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


async def prepare(settings: Settings) -> None:
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)


async def answers(client: Connection, seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not await connection.alive(client, 0.3):  # noqa: ASYNC110 # the other end is a process
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("arguments", [("agent",), ("sink", "cache")])
@pytest.mark.slow
def test_a_server_that_hangs_turns_healthz_red_within_ten_seconds_and_its_return_turns_it_green(
    settings: Settings, nats_server: NatsServer, arguments: tuple[str, ...]
) -> None:
    asyncio.run(prepare(settings))
    with running(settings, *arguments) as service:
        assert service.page("/healthz") == (200, "ok\n")
        stop(nats_server)
        try:
            assert "has answered nothing" in service.until("/healthz", 503, 10)
            assert "has answered nothing" in json.loads(service.page("/readyz")[1])["problems"]["connection"]
        finally:
            go_on(nats_server)
        service.until("/healthz", 200, 15)
        service.until("/readyz", 200, 15)
        assert service.process.poll() is None


async def test_a_network_that_swallows_everything_is_left_for_a_new_connection(
    settings: Settings, nats_server: NatsServer
) -> None:
    async with proxy(nats_server) as between, guarded(quick(settings, between.url)) as (client, health, _):
        received: list[bytes] = []

        async def take(message: Msg) -> None:
            received.append(message.data)

        await client.subscribe("x", cb=take)
        await answers(client)
        between.swallows = True
        async with asyncio.timeout(3):
            while watchdog.PART not in health.dead:  # noqa: ASYNC110 # seen from outside
                await asyncio.sleep(0.05)
        async with asyncio.timeout(3):
            while health.dead:  # noqa: ASYNC110 # seen from outside
                await asyncio.sleep(0.05)
        assert between.connections == 2
        await client.publish("x", b"again")
        await client.flush()
        assert received == [b"again"]


async def test_a_flush_waits_for_what_was_published_before_it(settings: Settings, nats_server: NatsServer) -> None:
    async with proxy(nats_server) as between, connection.connect(quick(settings, between.url), "test") as client:
        between.asked = b""
        await client.publish("x", b"first")
        await client.flush()
        assert between.asked == b"PUB x  5\r\nfirst\r\nPING\r\n"


async def test_what_is_buffered_for_somebody_who_hangs_does_not_hold_up_the_new_connection(
    settings: Settings, nats_server: NatsServer
) -> None:
    async with proxy(nats_server) as between, guarded(quick(settings, between.url)) as (client, health, _):
        await answers(client)
        between.deaf = True
        assert client._transport is not None
        for _ in range(40):  # more than the kernel takes
            client._transport.write(b"PUB x 500000\r\n" + bytes(500_000) + b"\r\n")
        async with asyncio.timeout(5):
            while between.connections == 1 or health.dead:  # noqa: ASYNC110 # seen from outside
                await asyncio.sleep(0.05)
        await answers(client)


@pytest.mark.slow
def test_a_service_whose_connections_die_one_after_another_ends_with_status_1(
    settings: Settings, nats_server: NatsServer
) -> None:
    async def scenario() -> int:
        async with proxy(nats_server) as between:
            with running_later(quick(settings, between.url)) as process:
                async with asyncio.timeout(20):
                    while not between.connections:  # noqa: ASYNC110 # another process connects
                        await asyncio.sleep(0.05)
                await asyncio.sleep(2)
                between.passing, between.swallows = 600, True  # enough for a handshake
                return await asyncio.to_thread(process.wait, 20)

    assert asyncio.run(scenario()) == 1


@contextmanager
def running_later(settings: Settings) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    process = subprocess.Popen([sys.executable, "-m", "spazio", "agent"], env=environ, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["cancelled", "raised"])
async def test_a_reader_that_ends_on_its_own_is_replaced(settings: Settings, client: Connection, how: str) -> None:
    ended = READERS._value.get()
    assert client._reading_task is not None
    if how == "cancelled":
        client._reading_task.cancel()
    else:

        def fail(*_: object) -> None:
            raise RuntimeError("a defect")

        subscription = await client.subscribe("x")
        client.taps[subscription._id] = fail
        await client.publish("x", b"")
    async with asyncio.timeout(3):
        while READERS._value.get() == ended:  # noqa: ASYNC110 # the client's own task
            await asyncio.sleep(0.01)
    client.taps.clear()
    await answers(client)
    assert (await client.jetstream().account_info()).streams


async def test_an_answer_that_nobody_waits_for_any_more_does_not_end_the_reader(
    client: Connection, nats_server: NatsServer
) -> None:
    lost = DISCONNECTS._value.get(), READERS._value.get()
    stop(nats_server)
    for _ in range(3):
        assert not await connection.alive(client, 0.1)
    go_on(nats_server)
    await answers(client)
    assert (DISCONNECTS._value.get(), READERS._value.get()) == lost
    assert client.is_connected


@pytest.mark.slow
async def test_a_server_that_is_down_for_long_is_waited_for(settings: Settings, nats_server: NatsServer) -> None:
    async with guarded(quick(settings)) as (client, health, watching):
        await asyncio.to_thread(nats_server.kill)
        await asyncio.sleep(4)
        assert not watching.done()
        assert not health.dead
        await asyncio.to_thread(nats_server.start)
        await answers(client)


@pytest.mark.slow
async def test_a_client_that_does_not_even_try_is_given_up(
    settings: Settings, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_FLUSH_SECONDS", 0.0)
    client._status = Connection.RECONNECTING  # as if its task had died
    with pytest.raises(watchdog.Hopeless, match="has not tried to connect"):
        async with asyncio.timeout(10):
            await watchdog.watch(client, Health(), quick(settings).nats)
    client._status = Connection.CONNECTED
