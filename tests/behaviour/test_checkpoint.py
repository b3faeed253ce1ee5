"""Checkpoints: the newest sound one is found, whatever happened while it was written."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.errors import ServiceUnavailableError

from bus import stream
from bus.api import FULL
from bus.folding import checkpoint
from bus.folding.checkpoint import Checkpoint, Overtaken, Store
from schemas import settings as all_settings
from schemas.subject import Names, description
from tests.behaviour.conftest import Bus, Real
from tests.conftest import NatsServer
from tests.support.server.raw import Answer, api

NAMES = Names()
BUCKET = NAMES.checkpoints
LARGE = bytes(range(251)) * 5000  # several chunks
SETTINGS = all_settings.load({"nats_partitions": "1"}, environ={})


@pytest.fixture
async def client(bus: Bus) -> AsyncIterator[Client]:
    async with bus.connect() as connected:
        await stream.ensure(connected, SETTINGS)
        yield connected


def store(client: Client) -> Store:
    return Store(client, BUCKET, timeout_seconds=2)


async def subjects(client: Client) -> list[str]:
    answer = await api(client, f"STREAM.INFO.OBJ_{BUCKET}", {"subjects_filter": ">"})
    return sorted(answer["state"].get("subjects", {}))


async def entry(client: Client, name: str) -> Answer:
    result: Answer = (await store(client)._look_up(name)).info
    return result


async def test_two_objects_take_turns_and_the_newest_is_found(client: Client) -> None:
    mine = store(client)
    assert await mine.load("3", "stream") is None
    for sequence in (5, 6, 7):
        await mine.save("3", Checkpoint("stream", sequence, b"state %d" % sequence + LARGE))
    assert await store(client).load("3", "stream") == Checkpoint("stream", 7, b"state 7" + LARGE)
    assert await store(client).load("3", "another stream") is None
    assert await store(client).load("4", "stream") is None
    listed = await subjects(client)
    assert len(listed) == 4
    assert sum(subject.startswith(f"$O.{BUCKET}.C.3.") for subject in listed) == 2
    heir = store(client)
    await heir.load("3", "stream")
    await heir.save("3", Checkpoint("stream", 8, b"next"))
    assert (await entry(client, "3.1"))["size"] < 200  # the older of the two made room
    assert await store(client).load("3", "stream") == Checkpoint("stream", 8, b"next")


async def test_a_chunk_that_is_gone_or_another_sets_the_checkpoint_aside(client: Client) -> None:
    mine = store(client)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, LARGE))
    chunks = f"$O.{BUCKET}.C.{(await entry(client, '0.1'))['nuid']}"
    await client.jetstream().purge_stream(f"OBJ_{BUCKET}", subject=chunks)
    assert await store(client).load("0", "s") == Checkpoint("s", 1, LARGE)
    await client.jetstream().publish(chunks, b"another")
    assert await store(client).load("0", "s") == Checkpoint("s", 1, LARGE)


async def test_a_byte_that_has_changed_sets_the_checkpoint_aside(client: Client) -> None:
    mine = store(client)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, b"state"))
    js, about = client.jetstream(), await entry(client, "0.1")
    chunks = f"$O.{BUCKET}.C.{about['nuid']}"
    written = (await js.get_msg(f"OBJ_{BUCKET}", subject=chunks)).data or b""
    await js.purge_stream(f"OBJ_{BUCKET}", subject=chunks)
    await js.publish(chunks, written.replace(b"state", b"State"))
    assert await store(client).load("0", "s") == Checkpoint("s", 1, b"state")


@pytest.mark.parametrize("garbage", [b"", b"nonsense", b"[1]", b'{"nuid":"x","size":7}', b'{"size":"many"}'])
async def test_a_description_that_is_none_hides_nothing_but_itself(client: Client, garbage: bytes) -> None:
    mine = store(client)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, b"state"))
    await client.jetstream().publish(description(BUCKET, "0.1"), garbage, headers={"Nats-Rollup": "sub"})
    heir = store(client)
    assert await heir.load("0", "s") == Checkpoint("s", 1, b"state")
    await heir.save("0", Checkpoint("s", 3, b"new"))
    assert await store(client).load("0", "s") == Checkpoint("s", 3, b"new")


async def test_a_checkpoint_of_another_version_is_set_aside(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await store(client).save("0", Checkpoint("s", 1, b"state"))
    monkeypatch.setattr(checkpoint, "VERSION", 99)
    assert await store(client).load("0", "s") is None


@pytest.mark.slow
async def test_a_write_that_is_cut_short_harms_nothing_and_leaves_nothing_for_long(client: Client, bus: Bus) -> None:
    mine = store(client)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, b"state"))
    for _ in range(2):
        await client.jetstream().publish(f"$O.{BUCKET}.C.0.0.DEAD", b"a writer died behind this")
    await bus.kill()
    with pytest.raises((nats.errors.Error, TimeoutError, OSError)):
        await mine.save("0", Checkpoint("s", 3, LARGE))
    await bus.start()
    async with bus.connect() as other:
        heir = store(other)
        assert await heir.load("0", "s") == Checkpoint("s", 2, b"state")
        await heir.save("0", Checkpoint("s", 3, LARGE))
        assert not [subject for subject in await subjects(other) if "DEAD" in subject]
        assert await store(other).load("0", "s") == Checkpoint("s", 3, LARGE)


@pytest.fixture
async def small(bus: Bus) -> AsyncIterator[Client]:
    """A connection to a server whose bucket has room for two large states, and not for three."""
    async with bus.connect() as connected:
        await stream.ensure(connected, all_settings.load({"nats_checkpoints_max_bytes": "3300000"}, environ={}))
        yield connected


async def test_a_write_that_a_full_bucket_refuses_leaves_nothing(small: Client) -> None:
    mine = store(small)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, LARGE))
    before = await subjects(small)
    for _ in range(3):
        with pytest.raises(nats.errors.Error, match=FULL):
            await mine.save("0", Checkpoint("s", 3, LARGE))
        assert await subjects(small) == before
    await mine.save("0", Checkpoint("s", 4, b"a state that fits"))
    assert await store(small).load("0", "s") == Checkpoint("s", 4, b"a state that fits")


@pytest.mark.parametrize("turn", [0, 1])
async def test_a_bucket_that_interrupted_writes_have_filled_takes_the_next_one(small: Client, turn: int) -> None:
    """`turn`: the object that they were to write; the next one writes 0."""
    mine = store(small)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, b"state"))
    with contextlib.suppress(ServiceUnavailableError):  # until it is full
        for number in range(100):
            await small.jetstream().publish(f"$O.{BUCKET}.C.0.{turn}.DEAD{number}", LARGE[:50_000])
    assert len(await subjects(small)) > 50
    heir = store(small)
    for sequence in (3, 4):
        await heir.load("0", "s")
        await heir.save("0", Checkpoint("s", sequence, LARGE))
        assert await store(small).load("0", "s") == Checkpoint("s", sequence, LARGE)
    assert not [subject for subject in await subjects(small) if "DEAD" in subject]


async def test_the_first_write_of_a_late_writer_removes_nothing_of_another_one(client: Client) -> None:
    owner, zombie = store(client), store(client)
    for sequence in (1, 2):
        await owner.save("0", Checkpoint("s", sequence, b"state"))
    await zombie.load("0", "s")
    await owner.save("0", Checkpoint("s", 9, b"nine"))
    with pytest.raises(Overtaken):
        await zombie.save("0", Checkpoint("s", 3, b"three"))
    assert await store(client).load("0", "s") == Checkpoint("s", 9, b"nine")


async def test_of_two_writers_the_one_that_is_late_learns_it(client: Client) -> None:
    owner, zombie = store(client), store(client)
    await zombie.save("0", Checkpoint("s", 1, b"one"))
    await zombie.save("0", Checkpoint("s", 2, b"two"))
    await owner.load("0", "s")
    await owner.save("0", Checkpoint("s", 9, b"nine"))
    with pytest.raises(Overtaken):
        await zombie.save("0", Checkpoint("s", 3, b"three"))
    assert await store(client).load("0", "s") == Checkpoint("s", 9, b"nine")
    assert len(await subjects(client)) == 4


async def test_many_are_written_and_read_at_once(client: Client) -> None:
    states = {str(number): Checkpoint("s", number + 1, bytes([number]) * 200_000) for number in range(16)}
    mine = store(client)
    await asyncio.gather(*(mine.save(name, state) for name, state in states.items()))
    heir = store(client)
    result = await asyncio.gather(*(heir.load(name, "s") for name in states))
    assert result == list(states.values())


async def test_what_the_clients_own_calls_have_written_is_read_and_replaced(client: Client) -> None:
    objects = await client.jetstream().object_store(BUCKET)
    head = {"version": checkpoint.VERSION, "stream": "s", "sequence": 4, "length": len(LARGE)}
    await objects.put("0.0", json.dumps(head).encode() + b"\n" + LARGE)
    mine = store(client)
    result = await mine.load("0", "s")
    assert result == Checkpoint("s", 4, LARGE)
    assert result is not None
    for sequence in (5, 6):
        await mine.save("0", replace(result, sequence=sequence))
    listed = await subjects(client)
    assert len(listed) == 4
    assert sum(subject.startswith(f"$O.{BUCKET}.C.0.") for subject in listed) == 2


async def test_the_older_one_is_not_read_while_the_newer_can_be_used(client: Client) -> None:
    mine = store(client)
    for sequence in (1, 2):
        await mine.save("0", Checkpoint("s", sequence, LARGE))
    before = client.stats["in_bytes"]
    assert await store(client).load("0", "s") == Checkpoint("s", 2, LARGE)
    assert client.stats["in_bytes"] - before < 1.5 * len(LARGE)


async def test_other_programs_can_read_it(nats_server: NatsServer) -> None:
    async with Real(nats_server).connect() as client:
        await stream.ensure(client, SETTINGS)
        await store(client).save("0", Checkpoint("s", 1, LARGE))
        objects = await client.jetstream().object_store(BUCKET)
        assert [info.name for info in await objects.list()] == ["0.0"]
        whole = (await objects.get("0.0")).data or b""
        assert whole.endswith(b"\n" + LARGE)
