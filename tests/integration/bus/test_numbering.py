"""The canary: everything works where the server numbers acknowledgements in the newer form (js_ack_fc_v2)."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import nats.errors
import numpy as np
import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import server
from bus.folding import checkpoint
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names
from tests.conftest import NatsServer
from tests.support.processors import telemetry

NAMES = Names()
NODES = [f"node-{number}" for number in range(4)]


@pytest.fixture
def nats_server(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsServer]:
    newer, count = re.subn(r"js_ack_fc_v2: false", "js_ack_fc_v2: true", server._CONFIG)
    assert count == 1
    monkeypatch.setattr(server, "_CONFIG", newer)
    running = NatsServer(tmp_path_factory.mktemp("newer"))
    running.start()
    yield running
    running.kill()


def command(settings: Settings, *arguments: str, port: int = 0) -> tuple[list[str], dict[str, str]]:
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": str(port)}
    environ["SPAZIO_HISTORY_FLUSH_SECONDS"] = "0.5"
    return [sys.executable, "-m", "spazio", *arguments], environ


@contextmanager
def running(settings: Settings, *arguments: str, port: int = 0) -> Iterator[None]:
    line, environ = command(settings, *arguments, port=port)
    process = subprocess.Popen(line, env=environ, stderr=None if os.environ.get("LOUD") else subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(10) == 0


async def output_of(settings: Settings, *arguments: str) -> str:
    line, environ = command(settings, *arguments)
    done = await asyncio.to_thread(
        subprocess.run, line, env=environ, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout


async def kept(settings: Settings) -> int:
    """Return the number of nodes in the history."""
    try:
        answer = await output_of(settings, "sql", "SELECT count(DISTINCT node) AS nodes FROM availability", "--json")
    except subprocess.CalledProcessError:  # there is no history yet
        return 0
    nodes: int = json.loads(answer)[0]["nodes"]
    return nodes


async def cached(client: Client, node: str) -> Availability:
    bucket = NAMES.availability_bucket
    stored = await client.jetstream().get_msg(f"KV_{bucket}", subject=f"$KV.{bucket}.{node}", direct=True)
    return codec.decode(Availability, stored.data or b"")


async def publish(client: Client, started: float) -> None:
    """Publish blocks of the present, since the cache forgets what is old."""
    random = np.random.default_rng(3)
    for second in range(8):
        for node in NODES:
            block = telemetry.noisy(node, second, 2, random)
            now = block.model_copy(update={"at_us": round((started + second) * 1e6)})
            await client.jetstream().publish(NAMES.node("samples", node), codec.encode(now))


async def test_the_server_really_uses_the_newer_form(client: Client) -> None:
    js = client.jetstream()
    await js.publish(NAMES.node("samples", "n"), b"x")
    puller = await js.pull_subscribe("", stream=NAMES.telemetry, durable="c")
    (message,) = await puller.fetch(1, timeout=2)
    assert len(message.reply.split(".")) >= 11


@pytest.mark.slow
async def test_the_whole_pipeline_works(client: Client, settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    port = await asyncio.to_thread(server.free_port, 0)
    started = float(int(time.time()) - 10)
    with ExitStack() as services:
        for name in (("process",), ("sink", "cache"), ("sink", "history")):
            services.enter_context(running(settings, *name))
        services.enter_context(running(settings, "sink", "metrics", port=port))
        await publish(client, started)
        deadline = loop.time() + 30
        rows: dict[str, Availability] = {}
        while len(rows) < len(NODES) and loop.time() < deadline:
            await asyncio.sleep(0.1)
            for node in NODES:
                try:
                    rows[node] = await cached(client, node)
                except (NotFoundError, nats.errors.Error):
                    continue
        assert rows.keys() == set(NODES)
        top = json.loads(await output_of(settings, "top", "--once", "--json"))
        assert {row["node"] for row in top} == set(NODES)
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read())
        assert b'spazio_available_pods{node="node-0"}' in page
        deadline = loop.time() + 30
        while await kept(settings) < len(NODES) and loop.time() < deadline:
            pass
    assert await kept(settings) == len(NODES)
    objects = await client.jetstream().stream_info(f"OBJ_{NAMES.checkpoints}")
    assert objects.state.messages  # the processor has checkpointed on its way out


async def test_checkpoints_are_written_and_read(client: Client) -> None:
    store = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=2)
    body = bytes(range(256)) * 5000
    for sequence in (1, 2, 3):
        await store.save("7", checkpoint.Checkpoint("s", sequence, body))
    other = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=2)
    assert await other.load("7", "s") == checkpoint.Checkpoint("s", 3, body)
