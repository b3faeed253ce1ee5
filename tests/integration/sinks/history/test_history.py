"""History as a service against a real nats-server: what is published is in the tables, whatever else arrives."""

import asyncio
import logging
import os
import socket
import sys
import time
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus.health import Health
from bus.stream import describe
from schemas import codec
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.history import layout, service, view
from sinks.history.continuity import gap
from tests.support.background import background
from tests.support.processors.telemetry import START, block
from tests.support.processors.workload import of_each_kind

NAMES = Names()
TABLES = ("samples", "containers", "pods", "nodes", "podfacts")


def counts(folder: Path) -> dict[str, int]:
    with view.connect(folder) as connection:
        rows = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in TABLES}
    return {table: row[0] for table, row in rows.items() if row}


async def until(folder: Path, expected: dict[str, int]) -> None:
    async with asyncio.timeout(60):
        while True:
            if (folder / view.FILE).exists() and counts(folder) == expected:
                return
            await asyncio.sleep(0.1)


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"history": settings.history.model_copy(update={"flush_seconds": 0.2})})


async def test_what_agents_and_the_cluster_watch_publish_is_in_the_tables(client: Client, quick: Settings) -> None:
    js, writing = client.jetstream(), asyncio.create_task(service.run(client, Live(quick), Health()))
    for number in range(5):
        await js.publish(NAMES.node("samples", "n"), codec.encode(block("n", number)))
        for kind, message in of_each_kind(number).items():
            for _ in range(2):  # without an id the stream keeps both
                await js.publish(NAMES.node(kind, "n"), codec.encode(message))
            await js.publish(NAMES.of(kind, token("other")), codec.encode(message))
            await js.publish(NAMES.node(kind, "n"), b"{")
    await until(quick.history_dir, {"samples": 50, "containers": 5, "pods": 15, "nodes": 5, "podfacts": 5})
    assert (await describe(client, NAMES.dead_letters)).last == 5 * 4 * 2  # what is no message, or another node's
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing


@pytest.mark.slow
async def test_rows_of_times_beyond_the_settings_are_refused(client: Client, quick: Settings) -> None:
    week = quick.history.model_copy(update={"retention_seconds": 7 * 86_400.0})
    live = Live(quick.model_copy(update={"history": week}))
    writing = asyncio.create_task(service.run(client, live, Health()))
    now = int(time.time()) - START
    for second in (0, now - 8 * 86_400, now - 6 * 86_400, now, now + 3000, now + 4000):
        await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", second)))
    await until(quick.history_dir, {"samples": 30, "containers": 0, "pods": 0, "nodes": 0, "podfacts": 0})
    writing.cancel()
    await asyncio.wait({writing})
    with view.connect(quick.history_dir) as connection:
        stored = connection.execute("SELECT DISTINCT seq - 1000 FROM samples ORDER BY 1").fetchall()
    assert stored == [(now - 6 * 86_400,), (now,), (now + 3000,)]


async def sink(settings: Settings) -> asyncio.subprocess.Process:
    options = ("--nats", settings.nats_url, "--data-dir", str(settings.data.dir), "--http-port", "0")
    history = ("--history-flush-seconds", "0.2", "--history-retention-seconds", str(86_400 * 36_500))
    command = [sys.executable, "-m", "spazio", "sink", "history", *options, *history]
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.slow
async def test_a_second_sink_on_the_folder_ends_and_names_the_first(client: Client, quick: Settings) -> None:
    writing = asyncio.create_task(service.run(client, Live(quick), Health()))
    try:
        for number in range(5):
            await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", number)))
        await until(quick.history_dir, {"samples": 50, "containers": 0, "pods": 0, "nodes": 0, "podfacts": 0})
        second = await sink(quick)
        try:
            async with asyncio.timeout(60):
                _, errors = await second.communicate()
        finally:
            if second.returncode is None:
                second.kill()
                await second.wait()
    finally:
        writing.cancel()
        await asyncio.wait({writing})
    reason = errors.decode()
    assert second.returncode == 2, reason
    assert f"process {os.getpid()} on host {socket.gethostname()} writes history into {quick.history_dir}" in reason
    assert "choose another folder with --history-dir" in reason
    assert counts(quick.history_dir)["samples"] == 50


@pytest.mark.slow
async def test_a_killed_sink_leaves_no_lock_behind(client: Client, quick: Settings) -> None:
    await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", 0)))
    first = await sink(quick)
    try:
        await until(quick.history_dir, {"samples": 10, "containers": 0, "pods": 0, "nodes": 0, "podfacts": 0})
    finally:
        first.kill()
        await first.wait()
    await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", 1)))
    writing = asyncio.create_task(service.run(client, Live(quick), Health()))
    await until(quick.history_dir, {"samples": 20, "containers": 0, "pods": 0, "nodes": 0, "podfacts": 0})
    writing.cancel()
    await asyncio.wait({writing})


@pytest.mark.slow
async def test_a_file_that_was_damaged_while_no_sink_ran_is_set_aside_at_the_start(
    client: Client, quick: Settings
) -> None:
    folder = layout.hour_folder(quick.history_dir, "samples", START * 1_000_000)
    folder.mkdir(parents=True)
    damaged = folder / str(layout.Name("20260101T000000000001Z", 1, 2))
    damaged.write_text("nonsense")
    health = Health()
    async with background(service.run(client, Live(quick), health)):
        await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", 0)))
        await until(quick.history_dir, {"samples": 10, "containers": 0, "pods": 0, "nodes": 0, "podfacts": 0})
        assert health.problems == {}
    assert damaged.with_name(damaged.name + layout.DAMAGED).read_text() == "nonsense"
    assert not damaged.exists()


@pytest.mark.slow
async def test_messages_that_expire_before_they_are_read_are_counted_and_show_until_rows_come(
    client: Client, quick: Settings
) -> None:
    def counted() -> list[float]:
        labels = ("samples", gap.EXPIRED)
        return [
            gap.GAP_MESSAGES.labels(NAMES.telemetry)._value.get(),
            gap.GAP_SECONDS.labels(*labels)._value.get(),
            gap.MISSING.labels("samples")._value.get(),
        ]

    async def publish(*seconds: int) -> None:
        for second in seconds:
            await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", second)))

    nothing = {"containers": 0, "pods": 0, "nodes": 0, "podfacts": 0}
    writing = asyncio.create_task(service.run(client, Live(quick), Health()))
    await publish(*range(5))
    await until(quick.history_dir, {"samples": 50, **nothing})
    writing.cancel()
    await asyncio.wait({writing})
    before = counted()
    await publish(*range(5, 10))
    await client.jetstream().purge_stream(NAMES.telemetry, seq=9)
    health = Seen()
    writing = asyncio.create_task(service.run(client, Live(quick), health))
    await until(quick.history_dir, {"samples": 70, **nothing})
    assert counted()[0] - before[0] == 3
    assert 0 < counted()[1] - before[1] <= 4
    assert health.seen == [f"gap in the history of {NAMES.telemetry}"]
    async with asyncio.timeout(5):
        while True:
            if not health.problems:
                break
            await asyncio.sleep(0.05)
    await publish(12)
    await until(quick.history_dir, {"samples": 80, **nothing})
    assert counted()[2] - before[2] == 2
    writing.cancel()
    await asyncio.wait({writing})


class Seen(Health):
    """Health that remembers which parts were degraded."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def degrade(self, part: str, reason: str, *, dead: bool = False, level: int = logging.ERROR) -> None:
        self.seen.append(part)
        super().degrade(part, reason, dead=dead, level=level)
