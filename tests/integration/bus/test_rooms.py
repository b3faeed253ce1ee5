"""Streams and buckets that are full, or were made by an earlier version, on a real server."""

import asyncio
import contextlib
import json
import time

import pytest
from nats.aio.client import Client
from nats.js.errors import KeyNotFoundError

from bus import connection, layout, stream
from bus.health import Health
from bus.publishing import dead
from bus.publishing.outbox import Outbox
from bus.reading.progress import Received
from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names
from sinks import cache
from tests.support.processors.estimate import availability

NAMES = Names()


def smaller(settings: Settings, **sizes: int) -> Settings:
    return settings.model_copy(update={"nats": settings.nats.model_copy(update=sizes)})


async def test_a_server_of_an_earlier_version_keeps_what_it_has_and_gets_a_stream_for_dead_letters(
    settings: Settings,
) -> None:
    async with connection.connect(settings, "test") as client:
        old = next(config for config in layout.configs(settings) if config.name == NAMES.events)
        await client.jetstream().add_stream(old.evolve(subjects=[NAMES.of("dead", ">"), NAMES.of("decision", ">")]))
        await client.jetstream().publish(NAMES.of("dead", "x"), b"letter")
        await client.jetstream().publish(NAMES.of("decision", "a", "b"), b"decision")
        before = await stream.describe(client, NAMES.events)
        for _ in range(2):
            await stream.ensure(client, settings)
        after = await stream.describe(client, NAMES.events)
        assert (after.identity, after.first, after.last) == (before.identity, 1, 2)
        assert (await client.jetstream().publish(NAMES.of("dead", "x"), b"letter")).stream == NAMES.dead_letters
        assert (await client.jetstream().publish(NAMES.of("decision", "a", "b"), b"")).stream == NAMES.events


async def test_a_stream_that_is_larger_than_the_server_may_store_is_refused_with_all_remedies(
    settings: Settings,
) -> None:
    async with connection.connect(settings, "test") as client:
        with pytest.raises(stream.NoRoom, match=r"max_file_store.*telemetry_max_bytes"):
            await stream.ensure(client, smaller(settings, telemetry_max_bytes=1 << 50))


async def test_a_flood_of_dead_letters_evicts_no_decision(settings: Settings) -> None:
    settings = smaller(settings, dead_max_bytes=1 << 20, events_max_bytes=1 << 20)
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
        await client.jetstream().publish(NAMES.of("decision", "a", "b"), b"decision")
        for number in range(1, 41):
            letter = Received(NAMES.part(0, "samples", "n"), number, bytes(100_000))
            await dead.bury(client, NAMES, "process", NAMES.telemetry, letter, "garbage", timeout_seconds=2)
        assert (await stream.describe(client, NAMES.dead_letters)).first > 1
        assert (await stream.describe(client, NAMES.events)).first == 1


async def test_of_a_flood_of_large_letters_the_beginnings_are_stored_and_say_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "_BUDGET", dead.Budget(lambda: 0.0))
    body = bytes(range(250)) * 2000
    for number in range(1, 101):
        letter = Received(NAMES.part(0, "samples", "flood"), number, body)
        await dead.bury(client, NAMES, "process", NAMES.telemetry, letter, "garbage", timeout_seconds=2)
    js, last = client.jetstream(), (await stream.describe(client, NAMES.dead_letters)).last
    whole, cut = [await js.get_msg(NAMES.dead_letters, seq=number) for number in (1, last)]
    assert whole.data == body
    assert "Spazio-Cut" not in (whole.headers or {})
    assert cut.data == body[:4096]
    assert (cut.headers or {})["Spazio-Cut"] == "4096/500000"
    assert (await js.stream_info(NAMES.dead_letters)).state.bytes < 1_400_000


async def test_every_stream_and_bucket_has_a_bound(settings: Settings) -> None:
    assert all((config.max_bytes or 0) > 0 for config in layout.configs(settings))


async def test_a_full_cache_drops_its_oldest_rows_and_goes_on(settings: Settings) -> None:
    settings = smaller(settings, bucket_max_bytes=60_000)
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
        running = asyncio.create_task(cache.run(client, settings, Health()))
        bucket = await client.jetstream().key_value(NAMES.availability_bucket)

        async def publish(node: str, available: float) -> None:
            made = availability(node=node, at_us=time.time_ns() // 1000, available=available)
            await client.jetstream().publish(NAMES.node("availability", node), codec.encode(made))

        async def until(node: str, available: float) -> None:
            async with asyncio.timeout(60):
                while True:
                    with contextlib.suppress(KeyNotFoundError):
                        if json.loads((await bucket.get(node)).value or b"")["available"] == available:
                            return
                    await asyncio.sleep(0.02)

        await publish("good", 1.0)
        await until("good", 1.0)
        for number in range(200):
            await publish(f"invented-{number}", 9.0)
        await until("invented-199", 9.0)
        await publish("good", 2.0)
        await until("good", 2.0)
        with pytest.raises(KeyNotFoundError):
            await bucket.get("invented-0")
        running.cancel()


async def test_a_full_bucket_stops_no_other_message_of_the_outbox(settings: Settings) -> None:
    settings, health = smaller(settings, bucket_max_bytes=20_000), Health()
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
        outbox = Outbox(client, health, limit=100, timeout_seconds=1, kind="facts")
        sending = asyncio.create_task(outbox.run())
        for number in range(5):
            outbox.put(f"$KV.{NAMES.nodes_bucket}.n{number}", bytes(6000), f"n{number}")
        outbox.put(NAMES.node("nodefacts", "n"), b"facts", "facts")
        assert await outbox.flush(10)
        assert "bucket_max_bytes" in health.problems["bucket of facts"]
        assert (await stream.describe(client, NAMES.telemetry)).last == 1
        outbox.put(f"$KV.{NAMES.nodes_bucket}.n0", b"smaller", "again")
        assert await outbox.flush(10)
        assert "bucket of facts" not in health.problems
        sending.cancel()


@pytest.mark.parametrize("subject", ["spazio.samples.é", "spazio.samples.a b", "spazio..x", "x" * 600])
async def test_a_dead_letter_of_a_subject_that_cannot_be_published_is_stored_all_the_same(
    client: Client, subject: str
) -> None:
    letter = dead.Letter(subject, b"payload", "  bad\r\nthing", "test", f"dead:test:{len(subject)}")
    await dead.store(client, NAMES, letter, timeout_seconds=2)
    stored = await client.jetstream().get_msg(NAMES.dead_letters, seq=1)
    assert (stored.subject, stored.data) == (NAMES.of("dead", "long"), b"payload")
    assert (stored.headers or {})["Spazio-Error"] == "bad thing"
