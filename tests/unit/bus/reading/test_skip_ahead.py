"""A reader that is far behind goes on near the end: blocks before are not sent, and all else is read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest

from bus.reading import feed as feeds
from bus.reading.feed import Feed
from bus.reading.lease import Lease
from bus.reading.leased import Ahead, LeasedReader
from bus.reading.progress import Received
from bus.reading.setback import Mark
from schemas.subject import Names
from tests.support.nats.client import Connection
from tests.support.nats.server import Server

NAMES = Names()
PATTERN = NAMES.partition(0)
APART = [NAMES.part(0, "podfacts")]
BLOCKS, FACTS = NAMES.of("samples", "n"), NAMES.of("podfacts", "n")
SECONDS = 0.1


async def nothing() -> int:
    return 0


async def publish(client: Connection, *subjects: str) -> None:
    for subject in subjects:
        await client.jetstream().publish(subject, subject.encode())


async def publish_backlog(client: Connection) -> None:
    """Store messages over more than the time before the end, and then some within it."""
    for _ in range(10):
        await publish(client, *[BLOCKS] * 9, FACTS)
        await asyncio.sleep(SECONDS / 2)
    await publish(client, BLOCKS)


def counted(messages: Sequence[Received]) -> tuple[int, int]:
    blocks = sum(".samples." in message.subject for message in messages)
    return blocks, len(messages) - blocks


async def drain(reader: LeasedReader) -> list[Received]:
    messages: list[Received] = []
    while more := await reader.read(timeout_seconds=0.2):
        messages += more
    return messages


def lease_of(client: Connection, name: str) -> Lease:
    return Lease(client, NAMES.telemetry, name, [PATTERN], failover_seconds=3, timeout_seconds=1, covered=nothing)


async def both_readers(client: Connection, feed: Feed, stack: AsyncExitStack) -> list[LeasedReader]:
    """Return the readers of two tasks, of which the first feeds the second; a block is there."""
    await publish(client, BLOCKS)
    readers: list[LeasedReader] = []
    for second in (False, True):
        lease = lease_of(client, f"c{second:d}")
        await stack.enter_async_context(lease)
        await lease.acquire()
        reader = feeds.reader(client, lease, feed, second=second, after=Mark(0), batch=10)
        readers.append(await stack.enter_async_context(reader))
    return readers


async def read_by_turns(client: Connection, readers: Sequence[LeasedReader]) -> list[list[Received]]:
    """Let each of two tasks read twice, so that the first feeds the second; returns what each has read."""
    both: list[list[Received]] = [[], []]
    for _ in range(2):
        for reader, messages in zip(readers, both, strict=True):
            messages.extend(await reader.read())
        await publish(client, BLOCKS)
    return both


@pytest.fixture
async def lease(server: Server, client: Connection) -> AsyncIterator[Lease]:
    held = lease_of(client, "c")
    async with held:
        await publish(client, BLOCKS)
        await held.acquire()
        yield held


async def test_blocks_before_the_end_are_skipped_and_counted_and_every_fact_is_read_in_order(
    client: Connection, lease: Lease
) -> None:
    async with LeasedReader(client, lease, batch=10) as reader:
        messages = await reader.read()
        await publish_backlog(client)
        messages += await reader.read()
        skipped = (await reader.skip_ahead(SECONDS, APART)).messages
        messages += skipped
        assert counted(skipped)[0] <= 10  # had been asked for
        messages += await drain(reader)
        left_out = reader.take_skipped()
    blocks, facts = counted(messages)
    assert facts == 10
    assert left_out > 30
    assert blocks + left_out == 92
    sequences = [message.sequence for message in messages]
    assert sequences == sorted(set(sequences))
    assert reader.take_skipped() == 0


async def test_nothing_is_skipped_near_the_end(client: Connection, lease: Lease) -> None:
    async with LeasedReader(client, lease, batch=10) as reader:
        await reader.read()
        await publish(client, *[BLOCKS] * 30)
        messages = await reader.read()
        messages += (await reader.skip_ahead(60, APART)).messages
        messages += await drain(reader)
        assert counted(messages) == (30, 0)
        assert reader.take_skipped() == 0


async def test_nothing_is_skipped_when_the_server_does_not_say_what_is_apart(
    client: Connection, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        raise TimeoutError

    async with LeasedReader(client, lease, batch=10) as reader:
        messages = await reader.read()
        await publish_backlog(client)
        messages += await reader.read()
        monkeypatch.setattr(reader, "_between", silent)
        messages += (await reader.skip_ahead(SECONDS, APART)).messages
        messages += await drain(reader)
    assert counted(messages) == (92, 10)


async def test_what_a_second_task_skips_is_counted_at_once_also_if_it_is_fed_then(
    server: Server, client: Connection
) -> None:
    feed = Feed(PATTERN)
    async with AsyncExitStack() as stack:
        readers = await both_readers(client, feed, stack)
        first, behind = readers
        await first.read()
        messages = await behind.read()
        await publish_backlog(client)
        await drain(first)
        feed.end()  # as if it had not kept all of it
        messages += await behind.read()
        messages += (await behind.skip_ahead(SECONDS, APART)).messages
        left_out = behind.take_skipped()
        assert left_out > 30
        for _ in range(2):
            await publish(client, BLOCKS)
            await drain(first)
            messages += await drain(behind)
        assert behind.take_skipped() == 0
        assert counted(messages)[0] + left_out == 94


async def test_a_second_task_skips_what_the_first_does(server: Server, client: Connection) -> None:
    feed = Feed(PATTERN)
    async with AsyncExitStack() as stack:
        readers = await both_readers(client, feed, stack)
        both = await read_by_turns(client, readers)
        await publish_backlog(client)
        first, second_reader = readers
        both[0] += await first.read()
        both[0] += (await first.skip_ahead(SECONDS, APART)).messages
        assert await second_reader.skip_ahead(SECONDS, APART) == Ahead([])
        both[0] += await drain(first)
        left_out = first.take_skipped()
        both[1] += await drain(second_reader)
        assert both[1] == both[0]
        assert left_out > 30
        assert second_reader.take_skipped() == left_out
        assert second_reader.take_skipped() == 0


async def test_of_what_is_read_apart_neither_task_has_what_the_first_does_not_keep_and_the_second_counts_it(
    server: Server, client: Connection
) -> None:
    def first_of(read: list[Received]) -> list[Received]:
        return read[:1]

    async with AsyncExitStack() as stack:
        first, second_reader = await both_readers(client, Feed(PATTERN), stack)
        both = await read_by_turns(client, (first, second_reader))
        await publish_backlog(client)
        both[0] += await first.read()
        both[0] += (await first.skip_ahead(SECONDS, APART, first_of)).messages
        both[0] += await drain(first)
        left_out = first.take_skipped()
        both[1] += await drain(second_reader)
        assert both[1] == both[0]
        blocks, facts = counted(both[0])
        assert facts < 10
        assert blocks + left_out == 94
        assert second_reader.take_skipped() == left_out + 10 - facts


@pytest.mark.slow
async def test_what_was_read_apart_when_the_server_stops_answering_is_read_again_by_both_tasks_and_not_counted(
    server: Server, client: Connection
) -> None:
    def none_of(_: list[Received]) -> list[Received]:
        server.delay_seconds = 1.5
        return []

    async with AsyncExitStack() as stack:
        first, second_reader = await both_readers(client, Feed(PATTERN), stack)
        both = await read_by_turns(client, (first, second_reader))
        await publish(client, *[FACTS] * 600)  # more than are asked for at once
        await publish_backlog(client)
        both[0] += await first.read()
        ahead = await first.skip_ahead(SECONDS, APART, none_of)
        server.delay_seconds = 0
        assert not ahead.continues
        assert ahead.left_out == 0
        await asyncio.sleep(2)
        both[0] += ahead.messages + await drain(first)
        both[1] += await drain(second_reader)
        assert both[1] == both[0]
        assert counted(both[0]) == (94, 610)
        assert first.take_skipped() == second_reader.take_skipped() == 0
