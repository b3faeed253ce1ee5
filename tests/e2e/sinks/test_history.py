"""The history sink as a process that is killed over and over, mostly in the middle of a flush."""

import asyncio
import functools
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout, view
from tests.support.processors.telemetry import block
from tests.support.processors.workload import of_each_kind

NAMES = Names()
KILLS, SECONDS = 8, 400
ROWS = {"samples": 10 * SECONDS, "containers": SECONDS, "pods": 3 * SECONDS, "nodes": SECONDS, "podfacts": SECONDS}


def row_counts(settings: Settings) -> dict[str, tuple[int, int]]:
    """Return rows, and different rows, of each table."""
    with view.connect(settings.history_dir) as connection:
        counts = {}
        for table in ROWS:
            columns = "* EXCLUDE (date, hour)"
            sql = f"SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {table})) FROM {table}"
            row = connection.execute(sql).fetchone()
            assert row
            counts[table] = (int(row[0]), int(row[1]))
    return counts


@asynccontextmanager
async def sink(settings: Settings) -> AsyncIterator[None]:
    """Run the sink with flushes that leave hardly a moment between them; end it by `kill -9`."""
    options = ("--nats", settings.nats_url, "--data-dir", str(settings.data.dir), "--http-port", "0")
    history = ("--history-flush-seconds", "0.01", "--history-retention-seconds", str(86_400 * 36_500))
    command = [sys.executable, "-m", "spazio", "sink", "history", *options, *history]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def feed(client: Client, numbers: range) -> None:
    for number in numbers:
        messages = {"samples": block("n", number), **of_each_kind(number)}
        for kind, message in messages.items():
            await client.jetstream().publish(NAMES.node(kind, "n"), codec.encode(message))
        await asyncio.sleep(0.04)


async def until(probe: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if probe():
                return
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_killed_again_and_again_the_history_has_every_row_once(client: Client, settings: Settings) -> None:
    def files() -> int:
        return sum(1 for _ in layout.files(settings.history_dir))

    chance, unfinished = random.Random(3), 0
    for start in range(0, SECONDS, SECONDS // KILLS):
        async with asyncio.TaskGroup() as group, sink(settings):
            before = files()
            group.create_task(feed(client, range(start, start + SECONDS // KILLS)))
            await until(functools.partial(lambda given: files() > given, before), 60)
            await asyncio.sleep(chance.uniform(0, 0.3))
        unfinished += any(settings.history_dir.glob("**/.*.tmp"))
    async with sink(settings):
        await until(lambda: {table: rows for table, (rows, _) in row_counts(settings).items()} == ROWS, 60)
    assert row_counts(settings) == {table: (rows, rows) for table, rows in ROWS.items()}
    print(f"{KILLS} kills, {unfinished} of them while a file was being written")
