"""A connection that calls itself connected and is dead: it is noticed, logged, and left, by real services."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from bus import connection, stream, watchdog
from schemas import settings as all_settings
from schemas.settings import Settings
from tests.conftest import NatsServer
from tests.integration.bus.dying import answers, go_on, guarded, proxy, quick, stop


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

    def until(self, path: str, status: int, seconds: float, text: str = "") -> None:
        """Wait for a page's status, and for a text on it."""
        deadline, response = time.monotonic() + seconds, (0, "")
        while time.monotonic() < deadline:
            response = self.page(path)
            if response[0] == status and text in response[1]:
                return
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


async def prepare(settings: Settings) -> None:
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)


@pytest.mark.parametrize("arguments", [("agent",), ("sink", "cache")])
@pytest.mark.slow
def test_a_server_that_hangs_is_reported_within_ten_seconds_and_is_no_reason_to_restart(
    settings: Settings, nats_server: NatsServer, arguments: tuple[str, ...]
) -> None:
    asyncio.run(prepare(settings))
    with running(settings, *arguments) as service:
        assert service.page("/healthz") == (200, "ok\n")
        stop(nats_server)
        try:
            service.until("/readyz", 503, 10, "has answered nothing")
            assert service.page("/healthz") == (200, "ok\n")
        finally:
            go_on(nats_server)
        service.until("/readyz", 200, 15)
        assert service.process.poll() is None


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_service_whose_connections_die_one_after_another_ends_with_status_1(
    settings: Settings, nats_server: NatsServer
) -> None:
    async def scenario() -> int:
        async with proxy(nats_server) as between:
            with running_later(quick(settings, between.url)) as process:
                async with asyncio.timeout(60):
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
