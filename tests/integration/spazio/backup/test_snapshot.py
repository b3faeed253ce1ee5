"""Snapshots of streams on real servers: a restored stream is the same to those who read on in it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from nats.aio.client import Client

from bus import api, connection, snapshot, stream
from bus.folding import journal
from bus.publishing import batch
from bus.publishing.batch import Row
from schemas.settings import Settings
from schemas.subject import Names
from tests.conftest import NatsServer

NAMES = Names()


@pytest.fixture
async def other(tmp_path: Path, settings: Settings) -> AsyncIterator[Client]:
    """A second server, without streams."""
    running = NatsServer(tmp_path / "other")
    running.start()
    try:
        nats = settings.nats.model_copy(update={"url": running.url})
        async with connection.connect(settings.model_copy(update={"nats": nats}), "other") as connected:
            yield connected
    finally:
        running.kill()


async def contents(client: Client, name: str) -> dict[int, tuple[str, bytes, object, object]]:
    """Return every message by sequence: subject, payload, headers and time."""
    js = client.jetstream()
    messages: dict[int, tuple[str, bytes, object, object]] = {}
    state = (await js.stream_info(name)).state
    for sequence in range(state.first_seq, state.last_seq + 1):
        try:
            message = await js.get_msg(name, sequence)
        except Exception:  # noqa: BLE001 # deleted
            continue
        messages[sequence] = (message.subject or "", message.data or b"", message.headers, message.time)
    return messages


async def moved(client: Client, other: Client, name: str) -> list[bytes]:
    parts: list[bytes] = []
    taken = await snapshot.take(client, name, parts.append, timeout_seconds=2)
    await snapshot.put(other, taken, parts, timeout_seconds=2)
    return parts


async def test_a_restored_stream_has_the_same_messages_sequences_times_and_identity(
    client: Client, other: Client
) -> None:
    js = client.jetstream()
    for number in range(30):
        headers = {"Nats-Msg-Id": f"id-{number}"}
        await js.publish(NAMES.node("samples", f"n{number % 3}"), b"%d" % number * 3000, headers=headers)
    for sequence in (1, 7, 30):  # a gap at either end, and one between
        await js.delete_msg(NAMES.telemetry, sequence)
    await moved(client, other, NAMES.telemetry)
    before, after = [await stream.describe(each, NAMES.telemetry) for each in (client, other)]
    assert after == before
    assert after.identity == before.identity
    assert await contents(other, NAMES.telemetry) == await contents(client, NAMES.telemetry)
    assert (await other.jetstream().publish(NAMES.node("samples", "n1"), b"new")).seq == 31


async def test_a_bucket_is_restored_with_its_keys_and_is_updated_like_any_other(
    client: Client, other: Client, settings: Settings
) -> None:
    for number in range(6):
        await client.jetstream().publish(f"$KV.{NAMES.nodes_bucket}.k{number % 2}", b"%d" % number)
    name = f"KV_{NAMES.nodes_bucket}"
    await moved(client, other, name)
    assert await contents(other, name) == await contents(client, name)
    identity = (await stream.describe(other, name)).identity
    await stream.ensure(other, settings)
    longer = settings.model_copy(update={"nats": settings.nats.model_copy(update={"duplicate_window_seconds": 10})})
    await stream.ensure(other, longer)  # an update keeps the identity
    assert (await stream.describe(other, name)).identity == identity
    assert await stream.missing(other, settings) == []


async def test_a_stream_restored_twice_still_has_the_identity_of_the_first(client: Client, other: Client) -> None:
    await client.jetstream().publish(NAMES.node("samples", "n"), b"x")
    first = (await stream.describe(client, NAMES.telemetry)).identity
    await moved(client, other, NAMES.telemetry)
    await snapshot.delete(client, NAMES.telemetry, timeout_seconds=2)
    await moved(other, client, NAMES.telemetry)
    assert (await stream.describe(client, NAMES.telemetry)).identity == first


@pytest.mark.slow
async def test_many_chunks_arrive_whole_while_others_publish(client: Client, other: Client) -> None:
    js, random = client.jetstream(), Random(1)
    for _ in range(40):
        await js.publish(NAMES.node("samples", "n"), random.randbytes(500_000))
    publishing = asyncio.create_task(_publish(client))
    parts = await moved(client, other, NAMES.telemetry)
    publishing.cancel()
    assert len(parts) > 70
    before, after = [await contents(each, NAMES.telemetry) for each in (client, other)]
    assert len(after) >= 40
    assert after == {sequence: before[sequence] for sequence in after}


async def _publish(client: Client) -> None:
    while True:
        await client.jetstream().publish(NAMES.node("samples", "n"), b"later")


async def test_a_stream_that_exists_and_bytes_that_are_damaged_are_refused(client: Client, other: Client) -> None:
    await client.jetstream().publish(NAMES.node("samples", "n"), b"x" * 1000)
    parts: list[bytes] = []
    taken = await snapshot.take(client, NAMES.telemetry, parts.append, timeout_seconds=2)
    with pytest.raises(api.Refused, match="in use"):
        await snapshot.put(client, taken, parts, timeout_seconds=2)
    whole = b"".join(parts)
    for damaged in (b"garbage" * 100, whole[: len(whole) // 2], whole[:30] + b"\0" + whole[31:]):
        with pytest.raises(api.Refused, match="restore failed"):
            await snapshot.put(other, taken, [damaged], timeout_seconds=2)
        if NAMES.telemetry in await snapshot.names(other, 2):
            await snapshot.delete(other, NAMES.telemetry, timeout_seconds=2)


async def test_a_batch_that_the_snapshot_splits_is_cut_and_whole_ones_stay(client: Client) -> None:
    expected = 0
    for number in range(2):
        rows = [Row(NAMES.node("availability", f"n{index}"), b"%d" % number) for index in range(3)]
        cursor = Row(NAMES.of("cursor", "0"), b"cursor %d" % number)
        expected = await batch.publish(client, NAMES.estimates, rows, cursor, expected, timeout_seconds=2)
    assert await snapshot.cut_batch(client, NAMES.estimates, timeout_seconds=2) == 8
    await client.jetstream().delete_msg(NAMES.estimates, 8)  # as if the snapshot had ended before it
    assert await snapshot.cut_batch(client, NAMES.estimates, timeout_seconds=2) == 4
    left = await contents(client, NAMES.estimates)
    assert sorted(left) == [1, 2, 3, 4]
    assert await snapshot.cut_batch(client, NAMES.estimates, timeout_seconds=2) == 8  # nothing more


async def test_a_global_model_whose_cause_is_missing_is_cut(client: Client) -> None:
    source = await stream.describe(client, NAMES.estimates)
    models = journal.Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=2)
    await models.covered(source)
    for sequence in (3, 5, 8, 9):
        await models.commit([Row(NAMES.model, b"%d" % sequence)], source, sequence)
        await client.jetstream().publish(NAMES.node("samples", "n"), b"between")
    restored = stream.Stream(source.name, source.created, 1, 5, 0)
    assert await journal.drop_beyond(client, NAMES.telemetry, NAMES.model, restored, timeout_seconds=2) == 2
    assert (await stream.newest(client, NAMES.telemetry, NAMES.model, 2)).payload == b"5"
    assert await models.covered(restored) == 5
