"""A replay and a server that does not answer for a moment."""

import asyncio

import pytest

from bus import connection, stream
from bus.folding.task import consumer_name
from bus.reading.reader import Reader
from schemas.settings import Settings
from schemas.subject import Names
from spazio.generator.consumption import Consumption

NAMES = Names()
_SECONDS_OF_QUIET = 2.0


@pytest.mark.slow
async def test_a_server_that_does_not_answer_ends_nothing_and_is_not_taken_for_quiet(settings: Settings) -> None:
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        consumption = Consumption(client, settings)
        async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
            await reader.read(timeout_seconds=0.1)
            await consumption.update()
            assert consumption.readers == 1
            await client.jetstream().delete_stream(NAMES.telemetry)
            await consumption.update()
            assert consumption.readers == 1
        async with asyncio.timeout(30):
            # The estimates are there and quiet; how far the telemetry is read is unknown.
            waiting = asyncio.create_task(consumption.finished())
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await client.jetstream().delete_stream(NAMES.estimates)
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await stream.ensure(client, settings)
            await waiting


@pytest.mark.slow
async def test_a_part_that_nobody_holds_any_more_is_waited_for_until_it_is_quiet(settings: Settings) -> None:
    """As while a processor starts again after all is folded: the server gives the part out with the next message."""
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        js = client.jetstream()
        await js.publish(NAMES.node("samples", "n"), b"{}")
        gone = await js.pull_subscribe(NAMES.part("*"), durable=consumer_name("0"), stream=NAMES.telemetry)
        await (await gone.fetch(1))[0].ack()
        (consumer,) = await stream.consumers(client, NAMES.telemetry)
        assert (consumer.name, consumer.pending, consumer.delivered) == ("process-0", 0, 1)
        async with asyncio.timeout(30):
            await Consumption(client, settings).finished()
