"""Atomic batches: all rows and the cursor, or nothing."""

import asyncio

import pytest
from nats.aio.client import Client

from bus import api as api_of
from bus import errors
from bus.publishing import batch
from bus.publishing.group_commit import GroupCommit
from bus.stream import Stored
from tests.behaviour.conftest import Bus
from tests.support.server.raw import Answer, Puller, api, consumer, error, info, places, publish, stream


async def part(
    client: Client, name: str, number: int, subject: str = "s.a", *, expected: int | None = None, **headers: object
) -> Answer:
    named = {"Nats_Batch_Id": name, "Nats_Batch_Sequence": number, **headers}
    return await publish(client, subject, b"x", expected=expected, **named)


async def test_a_batch_is_stored_when_it_is_committed_in_one_piece(client: Client) -> None:
    await stream(client, allow_atomic=True)
    assert await part(client, "a", 1) == {}
    await publish(client, "s.other")
    await part(client, "a", 2)
    assert (await info(client))["last_seq"] == 1
    answer = await part(client, "a", 3, "cursor", Nats_Batch_Commit=1, expected=0)
    assert answer == {"stream": "S", "seq": 4, "batch": "a", "count": 3}


@pytest.mark.parametrize(
    ("numbers", "code"), [((1, 3), 10176), ((2,), 10176), ((1, 1), 10176), ((0,), 10175), ((1001,), 10199)]
)
async def test_a_batch_with_a_hole_stores_nothing(client: Client, numbers: tuple[int, ...], code: int) -> None:
    await stream(client, allow_atomic=True)
    for number in numbers[:-1]:
        assert await part(client, "b", number) == {}
    headers: dict[str, object] = {"Nats_Batch_Id": "b", "Nats_Batch_Commit": 1}
    if numbers[-1]:
        headers["Nats_Batch_Sequence"] = numbers[-1]
    assert error(await publish(client, "s.a", b"", expected=None, **headers)) == code
    assert (await info(client))["last_seq"] == 0


async def test_a_batch_whose_cursor_has_moved_stores_nothing(client: Client) -> None:
    await stream(client, allow_atomic=True)
    await part(client, "first", 1, "cursor", Nats_Batch_Commit=1, expected=0)
    await part(client, "zombie", 1)
    refused = await part(client, "zombie", 2, "cursor", Nats_Batch_Commit=1, expected=0)
    assert refused["error"]["description"] == "wrong last sequence: 1"
    assert (await info(client))["last_seq"] == 1
    await part(client, "owner", 1)
    assert (await part(client, "owner", 2, "cursor", Nats_Batch_Commit=1, expected=1))["seq"] == 3


async def test_a_batch_that_names_a_message_twice_or_another_stream_is_refused(client: Client) -> None:
    await stream(client, allow_atomic=True)
    await part(client, "a", 1, Nats_Msg_Id="i")
    assert error(await part(client, "a", 2, Nats_Msg_Id="i", Nats_Batch_Commit=1)) == 10201
    assert error(await part(client, "b", 1, Nats_Expected_Stream="T", Nats_Batch_Commit=1)) == 10060
    await part(client, "c", 1, "cursor")
    assert error(await part(client, "c", 2, "cursor", Nats_Batch_Commit=1, expected=0)) == 10164
    assert (await info(client))["last_seq"] == 0


async def test_only_a_stream_that_allows_batches_takes_them(client: Client) -> None:
    await stream(client)
    assert error(await part(client, "a", 1, Nats_Batch_Commit=1)) == 10174


async def test_at_most_fifty_batches_are_open(client: Client) -> None:
    await stream(client, allow_atomic=True)
    for number in range(50):
        assert await part(client, f"b{number}", 1) == {}
    assert error(await part(client, "b50", 1)) == 10210
    assert await part(client, "b0", 2, Nats_Batch_Commit=1)
    assert await part(client, "b50", 1) == {}


async def test_an_open_batch_dies_with_the_server(bus: Bus) -> None:
    async with bus.connect() as client:
        await stream(client, allow_atomic=True)
        await part(client, "a", 1)
    await bus.kill()
    await bus.start()
    async with bus.connect() as client:
        assert error(await part(client, "a", 2, Nats_Batch_Commit=1)) == 10176
        assert (await info(client))["last_seq"] == 0


async def test_a_waiting_reader_gets_a_batch_whole(client: Client) -> None:
    await stream(client, allow_atomic=True)
    await consumer(client, "c")
    puller = Puller(client, "c")
    await puller.ask(10)
    for number in range(1, 5):
        await part(client, "a", number)
    assert await puller.nothing()
    await part(client, "a", 5, Nats_Batch_Commit=1)
    assert places(await puller.take(5)) == [(number, number) for number in range(1, 6)]


async def test_rows_and_cursor_go_through_the_batch_writer(client: Client) -> None:
    await stream(client, allow_atomic=True, allow_direct=True)
    rows = [batch.Row("s.a", b"%d" % number) for number in range(20)]
    first = await batch.publish(client, "S", rows, batch.Row("cursor", b"1"), 0, timeout_seconds=2)
    with pytest.raises(batch.Fenced):
        await batch.publish(client, "S", rows, batch.Row("cursor", b"2"), 0, timeout_seconds=2)
    assert await batch.publish(client, "S", [], batch.Row("cursor", b"3"), first, timeout_seconds=2) == first + 1
    await api(client, "STREAM.PURGE.S")
    later = await batch.publish(client, "S", [], batch.Row("cursor", b"4"), first + 1, timeout_seconds=2)
    assert (later, await batch.last(client, "S", "cursor")) == (first + 2, Stored(b"4", first + 2))


async def test_one_message_is_swapped_for_the_one_expected_and_for_no_other(client: Client) -> None:
    await stream(client, allow_direct=True, allow_msg_ttl=True)
    first = await batch.swap(client, batch.Row("s.a", b"1"), 0, 2)
    second = await batch.swap(client, batch.Row("s.a", b"2", 60), first, 2)
    for expected in (0, first):
        with pytest.raises(batch.Fenced):
            await batch.swap(client, batch.Row("s.a", b"3"), expected, 2)
    assert (second, await batch.last(client, "S", "s.a")) == (first + 1, Stored(b"2", second))
    with pytest.raises(errors.BusError):
        await batch.swap(client, batch.Row("nobody.listens", b"1"), 0, 2)


async def test_a_swap_that_the_stream_does_not_allow_is_refused_with_the_reason(client: Client) -> None:
    await stream(client)
    with pytest.raises(api_of.Refused, match="per-message TTL"):
        await batch.swap(client, batch.Row("s.a", b"1", 60), 0, 2)


def rows(name: str, count: int = 3) -> list[batch.Row]:
    return [batch.Row(f"s.{name}", b"%d" % number) for number in range(count)]


async def test_batches_of_several_callers_are_stored_as_one(client: Client) -> None:
    await stream(client, allow_atomic=True, allow_direct=True)
    group = GroupCommit(client, "S")
    names = ("a", "b", "c")
    for turn in range(3):
        before = [await batch.last(client, "S", f"s.cursor-{name}") for name in names]
        sequences = await asyncio.gather(
            *(
                group.publish(
                    rows(name), batch.Row(f"s.cursor-{name}", b"%d" % turn), stored.sequence, timeout_seconds=2
                )
                for name, stored in zip(names, before, strict=True)
            )
        )
        assert sequences == [12 * turn + 4, 12 * turn + 8, 12 * turn + 12]
        for name, sequence in zip(names, sequences, strict=True):
            assert await batch.last(client, "S", f"s.cursor-{name}") == Stored(b"%d" % turn, sequence)
    js = client.jetstream()
    batches = [(await js.get_msg("S", seq=number)).headers or {} for number in range(25, 37)]
    assert len({headers["Nats-Batch-Id"] for headers in batches}) == 1


async def test_of_several_callers_only_the_one_whose_cursor_has_moved_is_fenced(client: Client) -> None:
    await stream(client, allow_atomic=True, allow_direct=True)
    moved = await batch.publish(client, "S", [], batch.Row("s.cursor-b", b"other"), 0, timeout_seconds=2)
    group = GroupCommit(client, "S")
    results = await asyncio.gather(
        *(group.publish(rows(name), batch.Row(f"s.cursor-{name}", b"1"), 0, timeout_seconds=2) for name in "abc"),
        return_exceptions=True,
    )
    assert isinstance(results[1], batch.Fenced)
    assert (await info(client))["last_seq"] == moved + 8
    for name, sequence in (("a", results[0]), ("c", results[2])):
        assert isinstance(sequence, int)
        assert await batch.last(client, "S", f"s.cursor-{name}") == Stored(b"1", sequence)


async def test_batches_that_together_are_too_many_messages_are_stored_one_after_another(client: Client) -> None:
    await stream(client, allow_atomic=True, allow_direct=True)
    group = GroupCommit(client, "S")
    counts = [600, 399, 1, 999]
    sequences = await asyncio.gather(
        *(
            group.publish(rows(str(number), count), batch.Row(f"s.cursor-{number}", b"1"), 0, timeout_seconds=5)
            for number, count in enumerate(counts)
        )
    )
    assert (await info(client))["last_seq"] == sum(counts) + len(counts)
    assert sequences == [601, 1001, 1003, 2003]


async def test_a_caller_that_is_gone_before_its_turn_stores_nothing(client: Client) -> None:
    await stream(client, allow_atomic=True, allow_direct=True)
    group = GroupCommit(client, "S")
    await group.publish(rows("a"), batch.Row("s.cursor-a", b"1"), 0, timeout_seconds=2)
    leaving = asyncio.create_task(group.publish(rows("b"), batch.Row("s.cursor-b", b"1"), 0, timeout_seconds=2))
    staying = asyncio.create_task(group.publish(rows("c"), batch.Row("s.cursor-c", b"1"), 0, timeout_seconds=2))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 8
    assert (await info(client))["last_seq"] == 8
