"""The pipeline and the load generator against a real server, which is killed while they send."""

import asyncio
import json
from collections import Counter

import pytest
from nats.aio.client import Client

from bus import stream
from bus.health import Health
from bus.publishing.pipeline import Outgoing, Pipeline
from bus.reading.reader import Reader
from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names
from spazio.command import load
from spazio.command.load import Load
from tests.conftest import NatsServer

NAMES = Names()


def numbered(numbers: range) -> list[Outgoing]:
    subject = NAMES.node("samples", "n").encode()
    return [Outgoing(subject, b"%d" % number, b"id:%d" % number) for number in numbers]


async def stored(client: Client, count: int) -> list[tuple[str, bytes]]:
    published: list[tuple[str, bytes]] = []
    async with asyncio.timeout(30), Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        while len(published) < count:
            published += [(message.subject, message.data) for message in await reader.read(timeout_seconds=1)]
    return published


async def test_everything_is_stored_once_and_in_order_with_few_on_their_way(client: Client) -> None:
    async with asyncio.TaskGroup() as group, Pipeline(client, limit=50, timeout_seconds=5) as pipeline:
        group.create_task(pipeline.run())
        for start in range(0, 2000, 70):
            await pipeline.send(numbered(range(start, min(start + 70, 2000))))
            assert pipeline.in_flight <= 50
        assert await pipeline.drain(10)
    assert (pipeline.sent, pipeline.stored, pipeline.duplicates, pipeline.resent) == (2000, 2000, 0, 0)
    assert [data for _, data in await stored(client, 2000)] == [b"%d" % number for number in range(2000)]


@pytest.mark.slow
async def test_a_server_that_is_killed_costs_nothing_and_doubles_nothing(
    client: Client, nats_server: NatsServer
) -> None:
    async with asyncio.TaskGroup() as group, Pipeline(client, limit=500, timeout_seconds=1) as pipeline:
        group.create_task(pipeline.run())

        async def kill() -> None:
            for _ in range(20):
                if pipeline.resent:
                    return
                await asyncio.sleep(0.3)
                while not pipeline.in_flight:  # noqa: ASYNC110 # whatever is answered sooner has nothing to lose
                    await asyncio.sleep(0)
                nats_server.kill()
                await asyncio.sleep(0.3)
                await asyncio.to_thread(nats_server.start)
                await asyncio.sleep(0.5)

        killing = group.create_task(kill())
        number = 0
        while not killing.done():
            await pipeline.send(numbered(range(number, number + 20)))
            number += 20
            await asyncio.sleep(0.002)
        assert await pipeline.drain(20)
    assert pipeline.resent > 0
    # What the server had acknowledged and not yet written to disk is its own affair; everything else is there, once.
    counts = Counter(data for _, data in await stored(client, number))
    assert set(counts) == {b"%d" % each for each in range(number)}
    assert max(counts.values()) == 1


async def test_what_no_stream_takes_is_counted_and_waits_for_one(client: Client, settings: Settings) -> None:
    await client.jetstream().delete_stream(NAMES.telemetry)
    async with asyncio.TaskGroup() as group, Pipeline(client, limit=10, timeout_seconds=1) as pipeline:
        group.create_task(pipeline.run())
        await pipeline.send(numbered(range(5)))
        assert not await pipeline.drain(0.5)
        assert pipeline.refused
        await stream.ensure(client, settings)
        assert await pipeline.drain(5)
    assert len(await stored(client, 5)) == 5


@pytest.mark.slow
async def test_a_load_that_no_stream_takes_ends_and_says_what_to_start(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_DRAIN_SECONDS", 2.0)
    await client.jetstream().delete_stream(NAMES.telemetry)
    simulated = {"nodes": 40, "seconds": 2.0, "in_flight": 50}
    own = settings.model_copy(update={"simulated": settings.simulated.model_copy(update=simulated)})
    health = Health()
    sending = Load(client, own, health)
    async with asyncio.timeout(60):
        await sending.run()
    assert "spazio process" in health.problems["stream"]
    reached = sending.reached()
    assert reached["stored"] == 0
    assert 0 < reached["unanswered"] <= 50
    assert 4 <= reached["seconds"] < 8


@pytest.mark.slow
async def test_a_load_goes_on_once_there_is_a_stream(client: Client, settings: Settings) -> None:
    await client.jetstream().delete_stream(NAMES.telemetry)
    simulated = {"nodes": 40, "seconds": 4.0, "in_flight": 50, "kinds": ("samples",)}
    own = settings.model_copy(update={"simulated": settings.simulated.model_copy(update=simulated)})
    health = Health()
    sending = Load(client, own, health)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(sending.run())
        while "stream" not in health.problems:  # noqa: ASYNC110 # health tells nobody
            await asyncio.sleep(0.05)
        await stream.ensure(client, settings)
        while "stream" in health.problems:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (sending.reached()["stored"], sending.reached()["unanswered"]) == (160, 0)


async def test_a_message_that_the_server_does_not_take_is_an_error_and_none_before_it_is_on_its_way(
    client: Client,
) -> None:
    async with asyncio.TaskGroup() as group, Pipeline(client, limit=10, timeout_seconds=1) as pipeline:
        group.create_task(pipeline.run())
        with pytest.raises(ValueError, match="bytes"):
            await pipeline.send([*numbered(range(3)), Outgoing(b"spazio.samples.n", b"x" * (2 << 20), b"id")])
        assert pipeline.in_flight == 0
        await pipeline.send(numbered(range(3, 5)))
        assert await pipeline.drain(5)
    assert [data for _, data in await stored(client, 2)] == [b"3", b"4"]


@pytest.mark.slow
@pytest.mark.parametrize("prepared", [0, 2])
async def test_the_load_is_what_its_settings_say_second_by_second(
    client: Client, settings: Settings, prepared: int
) -> None:
    simulated = {"nodes": 40, "seconds": 5.0, "speed": 2.0, "kinds": ("samples", "pods"), "prepared_seconds": prepared}
    own = settings.model_copy(update={"simulated": settings.simulated.model_copy(update=simulated)})
    made = Load(client, own, Health())
    await made.run()
    reached = made.reached()
    assert (reached["stored"], reached["unanswered"], reached["refused"]) == (400, 0, {})
    assert 2.5 < reached["seconds"] < 6
    seconds: dict[tuple[str, str], list[int]] = {}
    for subject, data in await stored(client, 400):
        _, _, _, kind, node = subject.split(".")
        codec.decode_from(codec.MESSAGES[kind], data, subject)
        seconds.setdefault((kind, node), []).append(json.loads(data)["seq"])
    assert len(seconds) == 80
    assert all(seqs == list(range(seqs[0], seqs[0] + 5)) for seqs in seconds.values())
