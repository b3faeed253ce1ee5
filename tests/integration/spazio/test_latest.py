"""What a command that reads the live pipeline says when the server goes away meanwhile, or lacks what it asks for."""

import asyncio
import os
import signal
import sys

import pytest
from nats.aio.client import Client

from bus import stream
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from spazio.terminal import latest
from tests.conftest import NatsServer
from tests.support.dashboard.pages import cache, rows


async def test_a_server_that_goes_away_during_a_request_is_not_reported_to_lack_anything(
    settings: Settings, nats_server: NatsServer
) -> None:
    async def asked() -> None:
        async with latest.dial(settings) as client:
            nats_server.kill()
            await stream.describe(client, Names().telemetry)

    with pytest.raises(latest.Unreachable, match=r"went away, or did not answer in time: try again$"):
        await asked()


async def test_a_server_without_the_bucket_of_the_cache_is_reported_to_lack_it(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    await client.jetstream().delete_stream(f"KV_{Names().availability_bucket}")
    with pytest.raises(latest.Unreachable, match=r"has no bucket SPAZIO_AVAILABILITY: start the cache sink$"):
        async with latest.follow(settings):
            pass


async def test_a_server_that_hangs_is_not_reported_to_be_absent(settings: Settings, nats_server: NatsServer) -> None:
    brief = settings.nats.model_copy(update={"connect_timeout_seconds": 0.5})
    assert nats_server.process is not None
    nats_server.process.send_signal(signal.SIGSTOP)
    with pytest.raises(latest.Unreachable, match=r"accepts connections and is silent: it hangs"):
        async with latest.dial(settings.model_copy(update={"nats": brief})):
            pass


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "whole"), [("", True), ("80", False)])
async def test_a_table_in_a_pipe_has_whole_names_unless_columns_limit_it(
    client: Client, settings: Settings, columns: str, whole: bool
) -> None:
    name = "node-of-a-pool." * 16
    await cache(client, rows(2, names=[name]))
    environ = {**os.environ, **all_settings.environment(settings), "COLUMNS": columns}
    command = (sys.executable, "-m", "spazio", "top", "--once")
    top = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    shown, _ = await top.communicate()
    assert top.returncode == 0
    assert (name in shown.decode()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--partitions",)])
async def test_a_table_goes_into_a_pipe_at_every_interval_in_any_encoding(
    client: Client, settings: Settings, options: tuple[str, ...]
) -> None:
    await cache(client, rows(3))
    environ = {**os.environ, **all_settings.environment(settings), "PYTHONIOENCODING": "latin-1"}
    command = (sys.executable, "-m", "spazio", "top", *options)
    top = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        assert top.stdout is not None
        async with asyncio.timeout(60):
            for _ in range(2):
                await top.stdout.readuntil(b"spazio: ")
        if not options:
            listed = await top.stdout.readuntil(b"shop/web")
            assert b"node-00002" in listed
            assert b"?" in listed  # for the sign of "at least"
    finally:
        top.terminate()
        await top.wait()


@pytest.mark.slow
async def test_a_table_in_a_pipe_says_that_its_server_has_gone(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    await cache(client, rows(3))
    environ = {**os.environ, **all_settings.environment(settings)}
    command = (sys.executable, "-m", "spazio", "top")
    top = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        assert top.stdout is not None
        async with asyncio.timeout(60):
            connected = await top.stdout.readuntil(b"spazio: 3 of 3 nodes")
            nats_server.kill()
            await top.stdout.readuntil(b"disconnected for ")
            below = await top.stdout.readuntil(b"spazio: 3 of 3 nodes")
        assert b"disconnected" not in connected
        assert b" s \n" in below
    finally:
        top.terminate()
        await top.wait()
