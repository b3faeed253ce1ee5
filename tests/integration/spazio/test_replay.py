"""The end of a replay: servers that do not answer, and parts and consumers that are gone for a moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nats import micro
from nats.micro.request import Request
from nats.micro.service import EndpointConfig

from bus import connection, stream
from bus.connection import Connection
from bus.folding.task import consumer_name
from bus.reading.reader import Reader
from schemas.settings import Settings
from schemas.subject import Names
from spazio.generator import consumption
from spazio.generator.consumption import Consumption

NAMES = Names()
_SECONDS_OF_QUIET = 2.0


@pytest.mark.slow
async def test_a_server_that_does_not_answer_ends_nothing_and_is_not_taken_for_quiet(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_AGAIN_SECONDS", _SECONDS_OF_QUIET - settings.process.failover_seconds)
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        replay = Consumption(client, settings)
        async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
            await reader.read(timeout_seconds=0.1)
            await replay.update()
            assert replay.readers == 1
            await client.jetstream().delete_stream(NAMES.telemetry)
            await replay.update()
            assert replay.readers == 1
        async with asyncio.timeout(30):
            # The estimates are there and quiet; how far the telemetry is read is unknown.
            waiting = asyncio.create_task(replay.finished())
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await client.jetstream().delete_stream(NAMES.estimates)
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await stream.ensure(client, settings)
            async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:  # as the history, which goes on
                await reader.read(timeout_seconds=0.1)
                await waiting


@pytest.fixture
async def replaying(settings: Settings) -> AsyncIterator[Connection]:
    """A connection; one message was sent to part 0, whose holder is gone."""
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        js = client.jetstream()
        await js.publish(NAMES.node("samples", "n"), b"{}")
        gone = await js.pull_subscribe(NAMES.part("*"), durable=consumer_name("0"), stream=NAMES.telemetry)
        await (await gone.fetch(1))[0].ack()
        (consumer,) = await stream.consumers(client, NAMES.telemetry)
        assert (consumer.name, consumer.pending, consumer.delivered) == ("process-0", 0, 1)
        yield client


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
