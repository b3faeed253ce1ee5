"""Several processors side by side: parts spread, follow a stop and a crash, and every row is stored once."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from nats.aio.client import Client

from bus import connection
from bus.folding.worker_pool import Replica, replicas
from bus.reading.lease import Lease
from bus.reading.leased import LeasedReader
from schemas import codec
from schemas.messages.base import RELEASE
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import processing
from tests.integration.processors.test_engine import aggregated, caught_up, running
from tests.support.processors import telemetry

NAMES = Names()
ALL = {"0", "1", "2", "3", "aggregate"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    process = settings.process.model_copy(update={"failover_seconds": 1.5, "checkpoint_seconds": 0.5})
    nats = settings.nats.model_copy(update={"partitions": 4})
    off = {
        section: getattr(settings, section).model_copy(update={"enabled": False})
        for section in ("predict", "reject", "forecast")
    }
    return settings.model_copy(update={"process": process, "nats": nats, **off})


class Feed:
    """Telemetry of eight nodes, five seconds of it a second."""

    def __init__(self, client: Client) -> None:
        self.client, self.second = client, 0
        self.random = np.random.default_rng(5)

    async def run(self) -> None:
        while True:
            for node in range(8):
                block = telemetry.noisy(f"n{node}", self.second, 2, self.random)
                await self.client.jetstream().publish(NAMES.node("samples", f"n{node}"), codec.encode(block))
            self.second += 1
            await asyncio.sleep(0.2)


@contextmanager
def several(settings: Settings, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(settings, "process")) for _ in range(count)]


async def top(settings: Settings) -> list[dict[str, Any]]:
    """Return what `spazio top --partitions` shows."""
    command = [
        sys.executable,
        "-m",
        "spazio",
        "top",
        "--partitions",
        "--once",
        "--json",
        "--nats-url",
        settings.nats_url,
    ]
    completed = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(completed.stdout)
    return rows


async def spread(client: Client, count: int, seconds: float = 60) -> list[Replica]:
    """Wait until so many replicas do all parts, each at most one more than another."""
    members: list[Replica] = []
    async with asyncio.timeout(seconds):
        while True:
            members = await replicas(client, NAMES.prefix)
            sizes = [len(member.parts) for member in members]
            done = [part for member in members for part in member.parts]
            if len(members) == count and sorted(done) == sorted(ALL) and max(sizes) - min(sizes) <= 1:
                return members
            await asyncio.sleep(0.1)


async def taken(client: Client, but: int, seconds: float) -> float:
    """Wait until others than a process do all parts; returns how long that took."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while True:
            members = await replicas(client, NAMES.prefix, wait_seconds=0.05)
            if {part for member in members if member.pid != str(but) for part in member.parts} == ALL:
                return time.monotonic() - began


@pytest.mark.slow
async def test_parts_spread_and_follow_a_stop_at_once_and_a_crash_within_the_timeout(
    client: Client, settings: Settings
) -> None:
    feed = Feed(client)
    feeding = asyncio.create_task(feed.run())
    with several(settings, 2) as (first, second):
        await spread(client, 2)
        shown = await top(settings)
        assert {row["part"] for row in shown} == ALL
        assert {row["pid"] for row in shown} == {first.pid, second.pid}
        assert {row["version"] for row in shown} == {RELEASE}
        assert sum(row["nodes"] or 0 for row in shown) == 8
        assert all(row["lag"] is not None and row["since_us"] for row in shown)
        first.send_signal(signal.SIGTERM)
        left = await taken(client, first.pid, 3)
        with several(settings, 1) as (third,):
            await spread(client, 2)
            second.send_signal(signal.SIGKILL)
            crashed = await taken(client, second.pid, settings.process.failover_seconds + 3)
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding
            assert third.poll() is None
            await caught_up(client, settings)
            await aggregated(client, settings)
            rows = await caught_up(client, settings)
    assert len(rows) == len(set(rows))
    print(f"after a stop {left:.2f} s, after a crash {crashed:.2f} s")


@pytest.mark.slow
async def test_a_replica_that_was_stopped_and_goes_on_stores_nothing_twice(client: Client, settings: Settings) -> None:
    feed = Feed(client)
    feeding = asyncio.create_task(feed.run())
    with several(settings, 2) as (first, second):
        await spread(client, 2)
        for stopped in (first, second, first):
            stopped.send_signal(signal.SIGSTOP)
            await taken(client, stopped.pid, settings.process.failover_seconds + 3)
            await asyncio.sleep(0.5)
            stopped.send_signal(signal.SIGCONT)
            await spread(client, 2)
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding
        await caught_up(client, settings)
        await aggregated(client, settings)
        rows = await caught_up(client, settings)
    assert len(rows) == len(set(rows))


@pytest.mark.slow
async def test_what_a_dead_owner_was_sent_is_folded_though_nothing_new_comes(
    client: Client, settings: Settings
) -> None:
    for second in range(10):
        block = telemetry.noisy("n", second, 2, np.random.default_rng(6))
        await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block))
    async with connection.connect(settings, "dying") as other:
        for number in range(4):
            wanted = processing.subjects(NAMES, number)
            lease = Lease(
                other,
                NAMES.telemetry,
                f"process-{number}",
                wanted,
                failover_seconds=settings.process.failover_seconds,
                timeout_seconds=1,
                covered=lambda: asyncio.sleep(0, 0),
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await lease.acquire()
            if lease.held:
                async with LeasedReader(other, lease) as reader:
                    assert len(await reader.read(linger_seconds=0.3)) == 10
    with running(settings, "process"):
        rows = await caught_up(client, settings)
    assert sum(subject == "spazio.smoothed.n" for subject, _ in rows) == 10
