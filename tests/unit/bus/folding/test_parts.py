"""What an owner relies on when it takes a part over, and what it leaves for the next one; on a server in memory."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import nats.errors
import pytest
from nats.js import JetStreamContext

from bus import stream
from bus.folding import checkpoint, task_runner
from bus.folding.checkpoint import Checkpoint
from bus.folding.journal import Batches, Singles
from bus.folding.task_runner import CHECKPOINTS
from bus.health import Health
from bus.publishing.batch import Row
from schemas import codec
from schemas import settings as all_settings
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import processing
from tests.integration.processors.test_engine import caught_up
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server
from tests.support.processors import telemetry

NAMES = Names()


@pytest.fixture
def settings() -> Settings:
    given = all_settings.load({"nats_partitions": "1", "nats_request_timeout_seconds": "1"}, environ={})
    process = given.process.model_copy(update={"checkpoint_seconds": 0.05, "batch": 20, "failover_seconds": 1})
    return given.model_copy(update={"process": process})


async def model(client: Connection, journal: Singles, sequence: int) -> None:
    row = Row(NAMES.model, b"model of %d" % sequence)
    await journal.commit([row], await stream.describe(client, NAMES.estimates), sequence)


async def sums(client: Connection, count: int) -> None:
    for _ in range(count):
        await client.jetstream().publish(NAMES.of("model", "partition", "0"), b"sums")


async def test_what_is_no_row_of_ours_hides_no_cursor(client: Connection) -> None:
    await sums(client, 9)
    journal = Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1)
    source = await stream.describe(client, NAMES.estimates)
    assert await journal.covered(source) == 0
    await model(client, journal, 4)
    await model(client, journal, 7)
    for _ in range(2):
        await client.jetstream().publish(NAMES.model, b"garbage")
    heir = Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1)
    assert await heir.covered(source) == 7
    await model(client, heir, 8)
    assert await heir.covered(source) == 8


async def test_rows_of_a_version_without_cursors_are_not_made_a_second_time(client: Connection) -> None:
    await sums(client, 9)
    await client.jetstream().publish(NAMES.model, b"an old model")
    journal = Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1)
    source = await stream.describe(client, NAMES.estimates)
    assert await journal.covered(source) == source.last
    await model(client, journal, source.last)


async def test_rows_of_another_input_cover_nothing_of_this_one(client: Connection) -> None:
    await sums(client, 9)
    journal = Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1)
    await model(client, journal, 4)
    source = await stream.describe(client, NAMES.estimates)
    remade = replace(source, created=source.created + timedelta(seconds=1))
    assert await journal.covered(remade) == 0
    await client.jetstream().publish(NAMES.model, b"garbage")
    assert await journal.covered(remade) == 0


async def fill(client: Connection) -> None:
    for second in range(200):
        for node in range(5):
            block = telemetry.block(f"n{node}", second, cpu_util=0.3, pods=2.0)
            await client.jetstream().publish(NAMES.node("samples", block.node), codec.encode(block))


@pytest.mark.slow
async def test_checkpoints_are_written_while_a_backlog_is_folded(client: Connection, settings: Settings) -> None:
    await fill(client)
    before = CHECKPOINTS.labels("written")._value.get()
    working = asyncio.create_task(processing.run(client, Live(settings), Health()))
    await caught_up(client, settings)
    written = CHECKPOINTS.labels("written")._value.get() - before
    working.cancel()
    await asyncio.wait({working})
    assert written >= 3


async def test_a_server_that_does_not_answer_is_no_reason_to_begin_again(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=1)
    await store.save("0", Checkpoint("s", 7, b"state"))

    async def broken(*_: Any, **__: Any) -> Any:
        raise nats.errors.ConnectionReconnectingError

    with monkeypatch.context() as patched:
        patched.setattr(JetStreamContext, "get_msg", broken)
        with pytest.raises(nats.errors.ConnectionReconnectingError):
            await store.load("0", "s")
    assert await store.load("0", "s") == Checkpoint("s", 7, b"state")


@pytest.mark.slow
async def test_what_is_folded_again_is_checkpointed_on_the_way(
    server: Server, client: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runner, "_LONG_SECONDS", 3600)  # else what took long is checkpointed at its end
    await fill(client)
    never, often = (
        settings.model_copy(update={"process": settings.process.model_copy(update={"checkpoint_seconds": seconds})})
        for seconds in (3600, 0.01)
    )
    async with connect(server) as doomed:
        working = asyncio.create_task(processing.run(doomed, Live(never), Health()))
        await caught_up(client, settings)
        doomed.sever()
        working.cancel()
        await asyncio.wait({working})
    source = await stream.describe(client, NAMES.telemetry)
    journal = Batches(client, NAMES.estimates, NAMES.of("cursor", "0"), timeout_seconds=1)
    stored = await journal.covered(source)
    store = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=1)
    assert await store.load("0", source.identity) is None
    working = asyncio.create_task(processing.run(client, Live(often), Health()))
    async with asyncio.timeout(60):
        while (loaded := await store.load("0", source.identity)) is None:  # noqa: ASYNC110 # a bucket tells nobody here
            await asyncio.sleep(0.01)
    working.cancel()
    await asyncio.wait({working})
    assert loaded.sequence < stored
