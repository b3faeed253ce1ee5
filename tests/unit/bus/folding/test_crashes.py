"""The engine on a server in memory, in virtual time: crashes at any instant change no output."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np
import pytest
from nats.aio.client import Client

from bus import stream
from bus.health import Health
from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas import settings as all_settings
from schemas.live import Live
from schemas.messages.estimate import Model
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import processing
from tests.integration.processors.test_engine import aggregated, caught_up
from tests.support import virtual
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server
from tests.support.processors import telemetry

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
        working = asyncio.create_task(processing.run(client, Live(given), Health()))
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
            rows = await caught_up(client, given, 60)
            models = await aggregated(client, given, 60)
    assert len(rows) == len(set(rows))
    assert len(set(models)) == len(models) > 1
    return sum(task.result() for task in dying), len(rows)


@pytest.mark.cases
@pytest.mark.parametrize("seed", range(3))
def test_crashes_at_any_instant_change_no_output(seed: int) -> None:
    deaths, rows = virtual.run(scenario(seed))
    assert deaths > 5
    assert rows > NODES * SECONDS


def recorded(given: Settings, seed: int) -> list[tuple[str, bytes]]:
    """Return a recorded stream, (subject, payload): blocks of all nodes, and the global models that came back."""
    noise = np.random.default_rng(seed)
    partition, aggregate = Partition(given, 0), Aggregate(1, silent_seconds=given.model.silent_seconds)
    stored: list[tuple[str, bytes]] = []
    for second in range(SECONDS):
        blocks = [telemetry.noisy(f"node-{number}", second, 1 + second // 5, noise) for number in range(NODES)]
        stored += [(NAMES.node("samples", block.node), codec.encode(block)) for block in blocks]
        stored.append((NAMES.node("containers", "node-1"), codec.encode(telemetry.event("node-1", second + 0.5))))
        outputs, _ = partition.fold([(NAMES.part(0, "samples", block.node), codec.encode(block)) for block in blocks])
        for output in outputs:
            made = None
            if isinstance(output.message, Model):
                made = aggregate.fold(output.subject, codec.encode(output.message))
            if made is not None:
                stored.append((NAMES.model, codec.encode(made)))
    return stored


async def worked_off(replicas: int, seed: int) -> list[tuple[str, bytes]]:
    """Have so many replicas fold a recorded stream, in ticks as they come; return what is stored."""
    random.seed(seed)
    chance, given = random.Random(replicas), settings()
    changed = {"aggregate": False, "batch": chance.choice([1, 7, 100]), "tick_seconds": chance.choice([0.0, 0.05, 0.4])}
    given = given.model_copy(update={"process": given.process.model_copy(update=changed)})
    loop = asyncio.get_running_loop()
    server = Server(clock=lambda: telemetry.START + loop.time())
    async with connect(server) as client, AsyncExitStack() as stack:
        await stream.ensure(client, given)
        for _ in range(replicas):
            await stack.enter_async_context(replica(server, given))
        for subject, payload in recorded(given, seed):
            await client.jetstream().publish(subject, payload)
            await asyncio.sleep(0.1 * chance.random())
        return await caught_up(client, given, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_one_two_or_seven_replicas_store_the_same_rows(seed: int) -> None:
    alone = virtual.run(worked_off(1, seed))
    assert any(subject == NAMES.node("availability", "node-1") for subject, _ in alone)
    for replicas in (2, 7):
        assert sorted(virtual.run(worked_off(replicas, seed))) == sorted(alone)
