"""The end of a replay: servers that do not answer, and parts and consumers that are gone for a moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats import micro
from nats.micro.request import Request
from nats.micro.service import EndpointConfig

from bus import connection, stream
from bus.connection import Connection
from bus.folding.task import consumer_name
from bus.reading.lease import Lease
from bus.reading.reader import Reader
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout
from spazio.generator import consumption
from spazio.generator.consumption import Consumption
from spazio.service.child import Unstartable

NAMES = Names()
_SECONDS_OF_QUIET = 2.0


@asynccontextmanager
async def history(client: Connection) -> AsyncIterator[None]:
    """Read both streams as the history does."""
    async with (
        Reader(client, NAMES.telemetry, [">"]) as telemetry,
        Reader(client, NAMES.estimates, [">"]) as estimates,
    ):
        for reader in (telemetry, estimates):
            await reader.read(timeout_seconds=0.1)
        yield


@pytest.mark.slow
async def test_a_server_that_does_not_answer_ends_nothing_and_is_not_taken_for_quiet(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_AGAIN_SECONDS", _SECONDS_OF_QUIET - settings.process.failover_seconds)
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        replay = Consumption(client, settings)
        async with history(client):
            await replay.update()
            await client.jetstream().delete_stream(NAMES.telemetry)
            await replay.update()
        async with asyncio.timeout(30):
            # The estimates are there and quiet; how far the telemetry is read is unknown.
            waiting = asyncio.create_task(replay.finished())
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await client.jetstream().delete_stream(NAMES.estimates)
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await stream.ensure(client, settings)
            async with history(client):  # which goes on
                await waiting


@pytest.fixture
async def replaying(settings: Settings) -> AsyncIterator[Connection]:
    """A connection; one message was sent to part 0, whose holder is gone, and is in the history."""
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        js = client.jetstream()
        await js.publish(NAMES.node("samples", "n"), b"{}")
        gone = await js.pull_subscribe(NAMES.part("*"), durable=consumer_name("0"), stream=NAMES.telemetry)
        await (await gone.fetch(1))[0].ack()
        (consumer,) = await stream.consumers(client, NAMES.telemetry)
        assert (consumer.name, consumer.pending, consumer.delivered) == ("process-0", 0, 1)
        settings.history_dir.mkdir(parents=True)
        telemetry = await stream.describe(client, NAMES.telemetry)
        layout.write_cursor(settings.history_dir, telemetry.name, telemetry.identity, 1)
        async with history(client):
            yield client


async def nothing() -> int:
    return 0


async def test_a_part_of_which_no_message_came_is_not_waited_for(settings: Settings) -> None:
    """As of a recording that is too short for sums over its nodes."""
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        js = client.jetstream()
        lease = Lease(
            *(client, NAMES.estimates, "aggregate", [NAMES.of("model", "partition", "*")]),
            failover_seconds=settings.process.failover_seconds,
            timeout_seconds=2,
            covered=nothing,
        )
        acquiring = asyncio.create_task(lease.acquire())
        await asyncio.sleep(0.3)
        await js.publish(NAMES.node("availability", "n"), b"{}")
        async with asyncio.timeout(10):
            looked = 0
            while not looked:
                await asyncio.sleep(0.1)
                (info,) = await js.consumers_info(NAMES.estimates)
                looked = info.delivered.stream_seq if info.delivered else 0
        acquiring.cancel()
        settings.history_dir.mkdir(parents=True)
        estimates = await stream.describe(client, NAMES.estimates)
        layout.write_cursor(settings.history_dir, estimates.name, estimates.identity, 1)
        async with history(client):
            assert await ends(Consumption(client, settings), 5)


async def ends(replay: Consumption, within_seconds: float) -> bool:
    try:
        async with asyncio.timeout(within_seconds):
            await replay.finished()
    except TimeoutError:
        return False
    return True


@pytest.mark.slow
async def test_a_part_that_nobody_holds_has_time_to_be_folded_again_and_not_for_ever(
    replaying: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a processor starts again after all is folded: the server gives the part out with the next message."""
    monkeypatch.setattr(consumption, "_AGAIN_SECONDS", 1)
    assert not await ends(Consumption(replaying, settings), settings.process.failover_seconds)
    assert await ends(Consumption(replaying, settings), 30)


@pytest.mark.slow
async def test_a_part_whose_holder_is_behind_is_waited_for_as_long_as_that_takes(
    replaying: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_AGAIN_SECONDS", 0)
    report = {"sequence": 0}
    service = await micro.add_service(
        replaying,
        name=settings.prefix,
        version="1.0.0",
        metadata={"role": "process", "host": "h", "pid": "1"},
        stats_handler=lambda _: {"parts": {"0": report}},
    )
    await service.add_endpoint(EndpointConfig(name="parts", handler=ignore, subject="parts"))
    assert not await ends(Consumption(replaying, settings), settings.process.failover_seconds + 2)
    report["sequence"] = 1
    assert await ends(Consumption(replaying, settings), 2)
    await service.stop()


async def ignore(_: Request) -> None:
    """Answer nothing."""


@pytest.mark.slow
async def test_consumers_that_a_server_has_lost_are_waited_for(
    replaying: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_AGAIN_SECONDS", 0)
    seen = Consumption(replaying, settings)
    await seen.update()
    await replaying.jetstream().delete_consumer(NAMES.telemetry, consumer_name("0"))
    assert not await ends(seen, settings.process.failover_seconds + 2)


@pytest.mark.slow
async def test_a_replay_begins_and_ends_only_with_a_history_of_both_streams(
    client: Connection, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_STARTING_SECONDS", 2)
    js, replay = client.jetstream(), Consumption(client, settings)
    with pytest.raises(Unstartable, match="the processors did not start in time"):
        await replay.started(2)
    for part in ("0", "1", "prediction-0", "prediction-1"):
        await js.pull_subscribe(NAMES.part("*"), durable=consumer_name(part), stream=NAMES.telemetry)
    with pytest.raises(Unstartable, match="the history did not start in time"):
        await replay.started(2)
    assert not await ends(replay, 2)
    async with Reader(client, NAMES.telemetry, [">"]) as telemetry:
        await telemetry.read(timeout_seconds=0.1)
        with pytest.raises(Unstartable, match="the history did not start in time"):
            await replay.started(2)
    async with history(client):
        await replay.started(2)
        assert await ends(replay, 2)
