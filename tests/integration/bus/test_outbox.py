"""The outbox against a real nats-server: what no server takes, and several messages on their way at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from prometheus_client import REGISTRY

from bus.health import Health
from bus.publishing import identity
from bus.publishing.identity import Sealer
from bus.publishing.outbox import Outbox
from bus.publishing.pipeline import Outgoing, Pipeline
from bus.reading.reader import Reader
from schemas.subject import Names

NAMES = Names()
SUBJECT = NAMES.node("samples", "a")


def too_large() -> float:
    return REGISTRY.get_sample_value("spazio_publish_dropped_total", {"reason": "too_large"}) or 0.0


@asynccontextmanager
async def running(
    client: Client,
    *,
    in_flight: int = 1,
    timeout_seconds: float = 1,
    health: Health | None = None,
    sealer: Sealer | None = None,
) -> AsyncIterator[Outbox]:
    outbox = Outbox(
        client,
        health or Health(),
        limit=100,
        timeout_seconds=timeout_seconds,
        kind="samples",
        in_flight=in_flight,
        sealer=sealer,
    )
    sending = asyncio.create_task(outbox.run())
    yield outbox
    sending.cancel()


async def stored(client: Client) -> list[bytes]:
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        result = []
        while messages := await reader.read(timeout_seconds=0.3):
            result += [message.data for message in messages]
    return result


@pytest.mark.parametrize("in_flight", [1, 4])
async def test_a_message_that_no_server_takes_is_dropped_and_counted_and_stops_no_other(
    client: Client, caplog: pytest.LogCaptureFixture, in_flight: int
) -> None:
    before = too_large()
    async with running(client, in_flight=in_flight) as outbox:
        outbox.put(SUBJECT, b"first", "first")
        outbox.put(SUBJECT, b"x" * (client.max_payload + 1), "large")
        outbox.put(SUBJECT, b"last", "last")
        assert await outbox.flush(10)
    assert await stored(client) == [b"first", b"last"]
    assert too_large() == before + 1
    messages = [record.message for record in caplog.records if record.name == "bus.publishing.outbox"]
    assert messages == ["message.dropped"]


async def test_what_no_server_takes_is_counted_once_however_often_the_message_before_it_is_sent(client: Client) -> None:
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("apart.*", cb=arrived.put)  # stands for a stream that is full at first
    before = too_large()
    async with running(client, in_flight=2, timeout_seconds=20) as outbox:
        outbox.put("apart.a", b"first", "first")
        outbox.put("apart.a", b"x" * (client.max_payload + 1), "large")
        refusal = {"error": {"code": 503, "err_code": 10077, "description": "full"}}
        for answer in (refusal, refusal, {"stream": "APART", "seq": 1}):
            message = await asyncio.wait_for(arrived.get(), 5)
            assert message.data == b"first"
            await message.respond(json.dumps(answer).encode())
        assert await outbox.flush(5)
    assert too_large() == before + 1


async def test_several_messages_on_their_way_are_stored_in_their_order(client: Client) -> None:
    async with running(client, in_flight=8) as outbox:
        for number in range(50):
            outbox.put(SUBJECT, b"%d" % number, f"id{number}")
        assert await outbox.flush(10)
    assert await stored(client) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("in_flight", [1, 3])
async def test_so_many_messages_are_sent_before_the_first_is_stored_and_no_more(client: Client, in_flight: int) -> None:
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("apart.*", cb=arrived.put)  # stands for a stream that is slow to answer
    async with running(client, in_flight=in_flight, timeout_seconds=20) as outbox:
        for number in range(6):
            outbox.put("apart.a", b"%d" % number, f"id{number}")
        for sent in range(0, 6, in_flight):
            waiting = [await asyncio.wait_for(arrived.get(), 5) for _ in range(in_flight)]
            assert [message.data for message in waiting] == [b"%d" % number for number in range(sent, sent + in_flight)]
            await client.flush()
            await asyncio.sleep(0.05)
            assert arrived.empty()
            for message in waiting:
                await message.respond(json.dumps({"stream": "APART", "seq": sent + 1}).encode())
        assert await outbox.flush(5)


async def test_what_was_sent_behind_a_message_that_was_refused_is_sent_again_with_it(client: Client) -> None:
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    refusal = json.dumps({"error": {"code": 503, "err_code": 10077, "description": "full"}}).encode()
    await client.subscribe("apart.*", cb=arrived.put)
    sealer = Sealer(b"key")
    async with running(client, in_flight=3, timeout_seconds=20, sealer=sealer) as outbox:
        for number in range(3):
            outbox.put("apart.a", b"%d" % number, f"id{number}")
        taken = json.dumps({"stream": "APART", "seq": 1}).encode()
        for answer in (taken, refusal, taken):
            await (await asyncio.wait_for(arrived.get(), 5)).respond(answer)
        again = [await asyncio.wait_for(arrived.get(), 5) for _ in range(2)]
        assert [(message.data, (message.headers or {})["Nats-Msg-Id"]) for message in again] == [
            (b"1", sealer.seal(b"id1")),
            (b"2", sealer.seal(b"id2")),
        ]
        for message in again:
            await message.respond(taken)
        assert await outbox.flush(5)
    assert arrived.empty()


@pytest.mark.parametrize(
    "subject", [f"spazio.samples.{'=F0' * 2000}", "spazio.samples.a b", "spazio.samples.>", "a..b"]
)
async def test_a_subject_that_would_end_the_connection_stops_no_other_message(client: Client, subject: str) -> None:
    async with running(client) as outbox:
        outbox.put(subject, b"never", "never")
        outbox.put(SUBJECT, b"last", "last")
        assert await outbox.flush(10)
    assert client.stats["reconnects"] == 0
    assert await stored(client) == [b"last"]


def claimed() -> float:
    return REGISTRY.get_sample_value("spazio_publish_claimed_total") or 0.0


async def claim(client: Client, identity: str) -> None:
    await client.jetstream().publish(SUBJECT, b"forged", headers={"Nats-Msg-Id": identity})


async def test_who_knows_what_a_message_is_cannot_have_it_suppressed(client: Client) -> None:
    what = "samples:a:boot:7"
    for guess in (what, Sealer(b"another key").seal(what.encode())):
        await claim(client, guess)
    health = Health()
    async with running(client, health=health) as outbox:
        outbox.put(SUBJECT, b"true", what)
        assert await outbox.flush(10)
    assert await stored(client) == [b"forged", b"forged", b"true"]
    assert not health.problems


@pytest.mark.parametrize("in_flight", [1, 4])
async def test_a_duplicate_on_first_send_raises_the_alarm_and_is_stored_under_another_id(
    client: Client, in_flight: int
) -> None:
    sealer, health, before = Sealer(b"stolen"), Health(), claimed()
    await claim(client, sealer.seal(b"id1"))
    async with running(client, health=health, sealer=sealer, in_flight=in_flight) as outbox:
        for number in range(4):
            outbox.put(SUBJECT, b"%d" % number, f"id{number}")
        assert await outbox.flush(10)
        outbox.put(SUBJECT, b"3", "id3")  # one's own repetition is no alarm
        assert await outbox.flush(10)
    assert sorted(await stored(client)) == [b"0", b"1", b"2", b"3", b"forged"]
    assert claimed() == before + 1
    assert "somebody else has used its id" in health.problems["message ids"]


async def test_a_pipeline_stores_what_somebody_else_has_claimed(client: Client) -> None:
    health, before = Health(), claimed()
    async with (
        asyncio.TaskGroup() as group,
        Pipeline(client, limit=10, timeout_seconds=2, health=health) as pipeline,
    ):
        pipeline._sealer._key = b"stolen"
        await claim(client, Sealer(b"stolen").seal(b"id1"))
        group.create_task(pipeline.run())
        await pipeline.send([Outgoing(SUBJECT.encode(), b"%d" % number, b"id%d" % number) for number in range(3)])
        assert await pipeline.drain(10)
        assert pipeline.stored == 3
    assert sorted(await stored(client)) == [b"0", b"1", b"2", b"forged"]
    assert claimed() == before + 1
    assert "message ids" in health.problems


def test_the_key_of_a_folder_outlives_the_process_and_is_its_owners_alone(tmp_path: Path) -> None:
    first, second = identity.stored(tmp_path), identity.stored(tmp_path)
    assert first.seal(b"x") == second.seal(b"x") != Sealer().seal(b"x")
    assert (tmp_path / "run" / "ids.key").stat().st_mode & 0o777 == 0o600
    assert first.fresh
    assert not second.fresh  # an earlier process may have sent the same: its duplicates are no alarm
    (tmp_path / "file").write_text("")
    assert identity.stored(tmp_path / "file").seal(b"x") != first.seal(b"x")


async def test_what_follows_another_outbox_waits_for_it_only_if_it_is_more_than_a_second_ahead(client: Client) -> None:
    blocks, events = (Outbox(client, Health(), limit=9, timeout_seconds=1, kind=kind, in_flight=9) for kind in "be")
    events.follow(blocks)
    blocks.put(SUBJECT, b"block of 5", "b5", second=5)
    for second in (4, 6, 7, 8):
        events.put(SUBJECT, b"event of %d" % second, f"e{second}", second=second)
    sending = asyncio.create_task(events.run())
    assert not await events.flush(0.5), "the block is not sent yet"
    assert await stored(client) == [b"event of 4", b"event of 6"]
    blocks.put(SUBJECT, b"block of 6", "b6", second=6)
    also = asyncio.create_task(blocks.run())
    assert await events.flush(5)
    assert (await stored(client))[2:4] == [b"block of 5", b"block of 6"]
    for task in (sending, also):
        task.cancel()


async def test_a_queue_of_so_many_bytes_drops_its_oldest_messages_but_never_the_only_one(client: Client) -> None:
    outbox = Outbox(client, Health(), limit=100, timeout_seconds=1, kind="samples")
    outbox.restrict(10)
    for number in range(5):
        outbox.put(SUBJECT, b"%d234" % number, f"id{number}")
    sending = asyncio.create_task(outbox.run())
    assert await outbox.flush(5)
    outbox.put(SUBJECT, b"more than ten bytes", "large")
    assert await outbox.flush(5)
    assert await stored(client) == [b"3234", b"4234", b"more than ten bytes"]
    sending.cancel()
