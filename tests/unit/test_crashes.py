"""The engine on a server in memory, in virtual time: crashes at any instant change no output."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from nats.aio.client import Client

from bus import stream
from bus.health import Health
from bus.memory.client import Connection, connect
from bus.memory.server import Server
from processors import engine
from schemas import codec
from schemas import settings as all_settings
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names
from tests import telemetry, virtual
from tests.integration.test_engine import aggregated, caught_up

NAMES = Names()
SECONDS = 15
NODES = 4


def settings() -> Settings:
    given = all_settings.load({"nats_partitions": "2", "nats_request_timeout_seconds": "1"}, environ={})
    quick = {"checkpoint_seconds": 0.4, "failover_seconds": 1.0}
    return given.model_copy(update={"process": given.process.model_copy(update=quick)})


@asynccontextmanager
async def replica(server: Server, given: Settings) -> AsyncIterator[Connection]:
    """Run the engine on a connection of its own; at the end it is cancelled, connected or not."""
    async with connect(server) as client:
        working = asyncio.create_task(engine.run(client, Live(given), Health()))
        try:
            yield client
        finally:
            working.cancel()
            await asyncio.wait({working})
            if not working.cancelled():
                working.result()


async def publish(client: Client, second: int, chance: np.random.Generator) -> None:
    for node in (f"node-{number}" for number in range(NODES)):
        block = codec.encode(telemetry.noisy(node, second, 1 + second // 5, chance))
        headers = {"Nats-Msg-Id": f"{node}:{second}"}
        while True:
            try:
                await client.jetstream().publish(NAMES.node("samples", node), block, headers=dict(headers), timeout=0.5)
            except Exception:  # noqa: BLE001 # the server is being killed; the id makes the retry harmless
                await asyncio.sleep(0.05)
            else:
                break


async def crash_again_and_again(server: Server, given: Settings, chance: random.Random, over: asyncio.Event) -> int:
    """Let replicas live for a while each, and die: most without a word, some cleanly; returns how many did."""
    deaths = 0
    while not over.is_set():
        async with replica(server, given) as client:
            await asyncio.sleep(chance.choice([0.02, 0.3, 1.5, 4]) * chance.random())
            if chance.random() < 0.7:
                client.sever()
        deaths += 1
    return deaths


async def hurt(server: Server, chance: random.Random, over: asyncio.Event) -> None:
    """Kill the server, cut single connections, hold them up, and slow everything down."""
    while not over.is_set():
        await asyncio.sleep(2 * chance.random())
        what = chance.choice(("kill", "cut", "stall", "slow"))
        victims = server.sessions
        if what == "kill":
            server.kill()
            await asyncio.sleep(chance.random())
            server.start()
        elif what == "slow":
            server.delay_seconds = chance.choice([0, 0.001, 0.02])
        elif victims:
            victim = chance.choice(victims)
            if what == "cut":
                victim.close()
            else:
                # Half of the time the victim goes on hearing, and only what it says comes too late.
                victim.inbound.stalled, victim.outbound.stalled = True, chance.random() < 0.5
                await asyncio.sleep(3 * chance.random())
                victim.inbound.resume()
                victim.outbound.resume()


async def scenario(seed: int) -> tuple[int, int]:
    """Return how many replicas died, and how many rows there are in the end."""
    random.seed(seed)
    chance, noise = random.Random(seed), np.random.default_rng(seed)
    given, over = settings(), asyncio.Event()
    loop = asyncio.get_running_loop()
    server = Server(clock=lambda: telemetry.START + loop.time())
    async with connect(server) as client:
        await stream.ensure(client, given)
        async with asyncio.TaskGroup() as group:
            dying = [group.create_task(crash_again_and_again(server, given, chance, over)) for _ in range(2)]
            group.create_task(hurt(server, chance, over))
            for second in range(SECONDS):
                await publish(client, second, noise)
                await asyncio.sleep(0.5)
            over.set()
        server.delay_seconds = 0
        async with replica(server, given):
            # What the last owner was sent and did not fold waits until there is something new to read.
            await publish(client, SECONDS, noise)
            rows = await caught_up(client, given, 60)
            models = await aggregated(client, given, 60)
    assert len(rows) == len(set(rows))
    assert len(set(models)) == len(models) > 1
    return sum(task.result() for task in dying), len(rows)


@pytest.mark.parametrize("seed", range(3))
def test_crashes_at_any_instant_change_no_output(seed: int) -> None:
    deaths, rows = virtual.run(scenario(seed))
    assert deaths > 5
    assert rows > NODES * SECONDS
