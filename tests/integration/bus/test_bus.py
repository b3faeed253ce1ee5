"""The bus against a real nats-server that is killed while it is used."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from nats.aio.client import Client

from bus import stream
from bus.folding import checkpoint
from bus.health import Health
from bus.publishing import batch, coverage, dead
from bus.publishing.outbox import Outbox
from bus.reading.progress import Received
from bus.reading.reader import Reader
from schemas import codec
from schemas.messages.estimate import Cursor
from schemas.settings import Settings
from schemas.subject import Names
from tests.conftest import NatsServer

NAMES = Names()


def source(created: str, last: int) -> stream.Stream:
    """Return an input stream whose identity is made of a text."""

    class Named(stream.Stream):
        @property
        def identity(self) -> str:
            return created

    return Named("S", datetime.now(UTC), 1, last, 1)


async def publish(client: Client, node: str, numbers: range) -> None:
    js = client.jetstream()
    for number in numbers:
        await js.publish(NAMES.node("samples", node), str(number).encode())


async def connected(client: Client) -> None:
    async with asyncio.timeout(60):
        while True:
            if client.is_connected:
                return
            await asyncio.sleep(0.05)


async def read(reader: Reader, count: int) -> list[Received]:
    messages: list[Received] = []
    async with asyncio.timeout(30):
        while len(messages) < count:
            messages += await reader.read(timeout_seconds=1)
    return messages


async def test_telemetry_is_stored_by_partition_and_the_global_model_as_published(client: Client) -> None:
    js = client.jetstream()
    await js.publish(NAMES.node("samples", "ip-10.eu"), b"x")
    await js.publish(NAMES.model, b"y")
    sample = await js.get_msg(NAMES.telemetry, seq=1)
    model = await js.get_msg(NAMES.telemetry, seq=2)
    assert sample.subject in {"spazio.part.0.samples.ip-10_eu", "spazio.part.1.samples.ip-10_eu"}
    assert model.subject == "spazio.model"


async def test_ensuring_streams_again_changes_nothing_and_new_limits_are_taken_over(
    client: Client, settings: Settings
) -> None:
    before = await stream.describe(client, NAMES.telemetry)
    await stream.ensure(client, settings)
    assert await stream.describe(client, NAMES.telemetry) == before
    wider = settings.model_copy(
        update={"nats": settings.nats.model_copy(update={"telemetry_max_bytes": 32 << 20, "partitions": 7})}
    )
    await stream.ensure(client, wider)
    info = await client.jetstream().stream_info(NAMES.telemetry)
    assert info.config.max_bytes == 32 << 20
    assert (await stream.describe(client, NAMES.telemetry)).partitions == 2


async def test_a_stream_whose_subjects_stand_in_another_order_is_left_as_it_is(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    js = client.jetstream()
    present = (await js.stream_info(NAMES.estimates)).config
    other = sorted(present.subjects or (), reverse=True)
    assert other != present.subjects
    await js.update_stream(present.evolve(subjects=other))
    with caplog.at_level("INFO"):
        await stream.ensure(client, settings)
    assert (await js.stream_info(NAMES.estimates)).config.subjects == other
    assert "stream.updated" not in caplog.messages


async def test_a_reader_hands_out_every_message_once_and_in_order(client: Client) -> None:
    await publish(client, "a", range(700))
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")], batch=100) as reader:
        messages = await read(reader, 700)
    assert [int(message.data) for message in messages] == list(range(700))
    assert [message.sequence for message in messages] == list(range(1, 701))


async def test_a_reader_starts_behind_a_position_or_with_the_newest_of_each_subject(client: Client) -> None:
    await publish(client, "a", range(5))
    await publish(client, "b", range(3))
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")], after=6) as reader:
        assert [message.sequence for message in await read(reader, 2)] == [7, 8]
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")], newest=True) as reader:
        assert [message.sequence for message in await read(reader, 2)] == [5, 8]


@pytest.mark.slow
async def test_a_reader_misses_and_repeats_nothing_when_the_server_is_killed(
    client: Client, nats_server: NatsServer
) -> None:
    await publish(client, "a", range(50))
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        first = await read(reader, 50)
        await asyncio.to_thread(nats_server.kill)
        await asyncio.to_thread(nats_server.start)
        await connected(client)
        await publish(client, "a", range(50, 100))
        second = await read(reader, 50)
    assert [int(message.data) for message in first + second] == list(range(100))


async def test_a_reader_survives_the_loss_of_its_consumer(client: Client) -> None:
    await publish(client, "a", range(3))
    js = client.jetstream()
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        await read(reader, 3)
        for consumer in await js.consumers_info(NAMES.telemetry):
            await js.delete_consumer(NAMES.telemetry, consumer.name)
        await publish(client, "a", range(3, 6))
        assert [int(message.data) for message in await read(reader, 3)] == [3, 4, 5]


async def test_a_batch_with_an_outdated_cursor_stores_nothing(client: Client) -> None:
    subject = NAMES.of("cursor", "0")

    async def attempt(sequence: int, expected: int) -> int:
        cursor = Cursor(stream="s", created="c", sequence=sequence)
        rows = [batch.Row(NAMES.node("availability", f"n{number}"), b"{}") for number in range(5)]
        row = batch.Row(subject, codec.encode(cursor))
        return await batch.publish(client, NAMES.estimates, rows, row, expected, timeout_seconds=2)

    first = await attempt(1, 0)
    with pytest.raises(batch.Fenced):
        await attempt(2, 0)
    assert (await stream.describe(client, NAMES.estimates)).last == first
    assert await attempt(3, first) == first + 6
    assert await attempt(4, first + 6) == first + 12
    position, sequence, _ = await coverage.covered(client, NAMES.estimates, subject, source("c", 100))
    assert (position, sequence) == (4, first + 12)
    assert await coverage.covered(client, NAMES.estimates, subject, source("other", 100)) == (0, sequence, 0)
    for garbage in (b"nonsense", codec.encode(Cursor(stream="s", created="c", sequence=10**9))):
        await client.jetstream().publish(subject, garbage)
        position, sequence, _ = await coverage.covered(client, NAMES.estimates, subject, source("c", 100))
        assert position == 4
        assert sequence == (await stream.describe(client, NAMES.estimates)).last


async def test_a_cursor_that_has_aged_out_fences_nobody(client: Client) -> None:
    row = batch.Row(NAMES.of("cursor", "0"), codec.encode(Cursor(stream="s", created="c", sequence=1)))
    expected = await batch.publish(client, NAMES.estimates, [], row, 0, timeout_seconds=2)
    await client.jetstream().purge_stream(NAMES.estimates)
    later = row._replace(payload=codec.encode(Cursor(stream="s", created="c", sequence=2)))
    assert await batch.publish(client, NAMES.estimates, [], later, expected, timeout_seconds=2) == expected + 1


async def test_a_stored_message_may_carry_any_header(client: Client) -> None:
    js = client.jetstream()
    for number, status in enumerate(("100", "404", "409", "503", "")):
        await js.publish(NAMES.node("samples", "a"), b"%d" % number, headers={"Status": status, "Description": "x"})
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        assert [message.data for message in await read(reader, 5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_subjects_that_are_no_text_or_very_long_are_read_and_buried(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    long = b"spazio.samples." + b"n" * 3500
    _, writer = await asyncio.open_connection("127.0.0.1", nats_server.port)
    for subject in (b"spazio.samples.\xff\xfe", long):
        writer.write(b'CONNECT {"verbose":false}\r\nPUB ' + subject + b" 2\r\nhi\r\n")
    await writer.drain()
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        for message in await read(reader, 2):
            await dead.bury(client, NAMES, "process", NAMES.telemetry, message, "odd", timeout_seconds=2)
    writer.close()
    letters = [await client.jetstream().get_msg(NAMES.dead_letters, seq=number) for number in (1, 2)]
    assert [letter.data for letter in letters] == [b"hi", b"hi"]
    assert letters[1].subject == "spazio.dead.long"
    assert (letters[1].headers or {})["Spazio-Subject"].startswith("spazio.samples.nnn")


@pytest.mark.slow
async def test_an_atomic_batch_is_whole_or_absent_when_the_server_is_killed_in_between(
    client: Client, nats_server: NatsServer
) -> None:
    """Batches go on while the server is killed three times: each is stored once, wholly, and in order."""
    subject, expected = NAMES.of("cursor", "1"), 0

    async def disturb() -> None:
        for _ in range(3):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(nats_server.kill)
            await asyncio.to_thread(nats_server.start)

    disturbance = asyncio.create_task(disturb())
    number = 0
    async with asyncio.timeout(60):
        while not disturbance.done() or number < 20:
            number += 1
            rows = [batch.Row(NAMES.node("smoothed", f"n{index}"), b"%d" % number) for index in range(40)]
            cursor = batch.Row(subject, codec.encode(Cursor(stream="s", created="c", sequence=number)))
            expected = await batch.publish(client, NAMES.estimates, rows, cursor, expected, timeout_seconds=1)
    await disturbance
    async with Reader(client, NAMES.estimates, [NAMES.of("smoothed", "*"), subject]) as reader:
        stored = await read(reader, number * 41)
        assert await reader.read(timeout_seconds=0.3) == []
    assert len(stored) == number * 41
    for index in range(number):
        part = stored[index * 41 : (index + 1) * 41]
        assert [message.data for message in part[:40]] == [b"%d" % (index + 1)] * 40
        assert json.loads(part[40].data)["sequence"] == index + 1


async def test_the_outbox_keeps_the_newest_while_the_server_is_away_and_stores_each_once(
    client: Client, nats_server: NatsServer
) -> None:
    outbox = Outbox(client, Health(), limit=5, timeout_seconds=0.5, kind="samples")
    sending = asyncio.create_task(outbox.run())
    outbox.put(NAMES.node("samples", "a"), b"0", "id0")
    assert await outbox.flush(5)
    await asyncio.to_thread(nats_server.kill)
    for number in range(1, 11):
        outbox.put(NAMES.node("samples", "a"), b"%d" % number, f"id{number}")
    await asyncio.to_thread(nats_server.start)
    assert await outbox.flush(15)
    outbox.put(NAMES.node("samples", "a"), b"again", "id10")
    assert await outbox.flush(5)
    sending.cancel()
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        stored = await read(reader, 6)
        stored += await reader.read(timeout_seconds=0.3)
    assert [message.data for message in stored] == [b"0", b"6", b"7", b"8", b"9", b"10"]


async def test_a_dead_letter_is_stored_once_with_its_reason_and_whole_up_to_the_largest_payload(
    client: Client,
) -> None:
    big = b"z" * client.max_payload
    for payload in (b"garbage", big):
        await client.jetstream().publish(NAMES.node("samples", "x"), payload)
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        small, large = await read(reader, 2)
    for consumer in ("process", "history"):
        await dead.bury(client, NAMES, consumer, NAMES.telemetry, small, "bad\nthing", timeout_seconds=2)
        await dead.bury(client, NAMES, consumer, NAMES.telemetry, large, "too big", timeout_seconds=2)
    js = client.jetstream()
    letter = await js.get_msg(NAMES.dead_letters, seq=1)
    assert (letter.subject, letter.data) == ("spazio.dead.spazio.samples.x", b"garbage")
    assert letter.headers is not None
    assert letter.headers["Spazio-Error"] == "bad thing"
    assert letter.headers["Spazio-Consumer"] == "process"
    assert letter.headers["Nats-Msg-Id"] == f"dead:{NAMES.telemetry}:1"
    parts = [await js.get_msg(NAMES.dead_letters, seq=number) for number in (2, 3)]
    assert b"".join(part.data or b"" for part in parts) == big
    assert (await stream.describe(client, NAMES.dead_letters)).last == 3


async def test_the_newest_sound_checkpoint_is_loaded_and_a_damaged_one_set_aside(client: Client) -> None:
    store = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=2)
    assert await store.load("3", "stream") is None
    for sequence in (5, 6, 7):
        await store.save("3", checkpoint.Checkpoint("stream", sequence, b"state %d" % sequence))
    other = checkpoint.Store(client, NAMES.checkpoints, timeout_seconds=2)
    assert await other.load("3", "stream") == checkpoint.Checkpoint("stream", 7, b"state 7")
    assert await other.load("3", "another stream") is None
    await (await client.jetstream().object_store(NAMES.checkpoints)).put("3.0", b"nonsense")
    assert await other.load("3", "stream") == checkpoint.Checkpoint("stream", 6, b"state 6")
