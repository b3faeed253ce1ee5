"""A full buffer is written at once, but not again and again while the disk is full; during the upkeep it fills."""

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest
from nats.aio.client import Client

from bus.health import Health
from schemas import codec
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import service
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Writer
from tests.integration.sinks.history.test_history import until
from tests.support.background import background
from tests.support.processors.telemetry import block

NAMES = Names()
NOTHING = {"containers": 0, "pods": 0, "nodes": 0, "podfacts": 0}


def changed(settings: Settings, flush_seconds: float) -> Settings:
    history = settings.history.model_copy(update={"flush_seconds": flush_seconds, "buffer_rows": 1000})
    return settings.model_copy(update={"history": history})


async def publish(client: Client, seconds: range) -> None:
    for second in seconds:
        await client.jetstream().publish(NAMES.node("samples", "n"), codec.encode(block("n", second)))


async def test_rows_that_fill_the_buffer_are_written_long_before_they_are_due(
    client: Client, settings: Settings
) -> None:
    hourly = changed(settings, 3600.0)
    async with background(service.run(client, Live(hourly), Health())):
        for begin in (0, 100, 200):
            await publish(client, range(begin, begin + 100))  # ten rows each
            async with asyncio.timeout(20):
                await until(hourly.history_dir, {"samples": 10 * (begin + 100), **NOTHING})


@pytest.mark.slow
async def test_while_the_disk_takes_nothing_a_full_buffer_is_written_as_often_as_any(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, flush, attempts = changed(settings, 0.2), Writer.flush, []

    def fail(writer: Writer) -> int:
        if not writer.rows:
            return flush(writer)
        attempts.append(writer.rows)
        raise OSError(28, os.strerror(28))

    health = Health()
    async with background(service.run(client, Live(quick), health)):
        with monkeypatch.context() as patched:
            patched.setattr(Writer, "flush", fail)
            await publish(client, range(150))
            await asyncio.sleep(2)
        assert any("cannot be written" in reason for reason in health.problems.values())
        assert attempts[-1] >= 1000
        assert len(attempts) < 25
        await until(quick.history_dir, {"samples": 1500, **NOTHING})


@pytest.mark.slow
async def test_while_a_step_of_the_upkeep_takes_long_the_stream_is_read_into_the_buffer(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick, begun, go = changed(settings, 0.2), threading.Event(), threading.Event()

    def steps(*_: object) -> Iterator[str]:
        begun.set()
        go.wait(60)
        yield "a merge"

    def buffered() -> float:
        return float(service.LAG.labels(NAMES.telemetry)._value.get())

    monkeypatch.setattr(service, "_FIRST_TIDY_SECONDS", 0.2)
    monkeypatch.setattr(Upkeep, "steps", steps)
    async with background(service.run(client, Live(quick), Health())):
        try:
            await publish(client, range(1))
            async with asyncio.timeout(20):
                while not begun.is_set():  # noqa: ASYNC110 # another thread begins it
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)  # two writes are due
            await publish(client, range(1, 81))
            async with asyncio.timeout(20):
                while buffered() < 800:  # noqa: ASYNC110 # a gauge sends no notice
                    await asyncio.sleep(0.01)
        finally:
            go.set()
        await until(quick.history_dir, {"samples": 810, **NOTHING})
