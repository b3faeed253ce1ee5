"""A task takes what another one of its process has read, and reads by itself wherever that has a gap."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bus import api
from bus.reading import feed as feeds
from bus.reading import leased
from bus.reading.feed import Feed
from bus.reading.lease import Lease, Lost
from bus.reading.leased import LeasedReader
from bus.reading.progress import Received
from bus.reading.setback import Mark, SetBack
from schemas.subject import Names
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server

NAMES = Names()
PATTERN = NAMES.partition(0)


def message(sequence: int, subject: str = NAMES.part(0, "samples", "n"), size: int = 1) -> Received:
    return Received(subject, sequence, b"x" * size, sequence * 1_000_000)


def following(*, max_bytes: int = 100) -> Feed:
    feed = Feed(PATTERN, max_bytes)
    feed.follow()
    return feed


def put(feed: Feed, after: int, messages: list[Received]) -> None:
    feed.put(after, messages, messages[-1].sequence)


def sequences(messages: list[Received]) -> list[int]:
    return [each.sequence for each in messages]


def test_nothing_is_kept_without_a_second_task() -> None:
    feed = Feed(PATTERN)
    put(feed, 0, [message(1)])
    assert not feed.covers(0)
    assert not len(feed)


def test_what_was_put_is_taken_once_without_what_the_second_task_does_not_read() -> None:
    feed = following()
    put(feed, 3, [message(4), message(6, NAMES.model), message(7)])
    assert not feed.covers(2)
    assert feed.covers(5)
    assert feed.seconds == 3.0
    assert sequences(feed.take(5, 9)) == [7]
    put(feed, 7, [message(8, NAMES.model)])
    assert feed.take(7, 9) == []
    assert feed.covers(7)
    put(feed, 8, [message(9)])
    assert sequences(feed.take(7, 9)) == [9]
    assert not feed.covers(7)


def test_a_gap_begins_a_feed_anew() -> None:
    feed = following()
    put(feed, 0, [message(1)])
    put(feed, 2, [message(3)])
    assert not feed.covers(0)
    assert sequences(feed.take(2, 9)) == [3]
    put(feed, 1, [message(2)])
    assert not feed.covers(3)  # the first task has gone back
    put(feed, 2, [message(3), message(4)])
    assert sequences(feed.take(3, 9)) == [4]


def test_what_the_first_task_has_skipped_is_no_gap() -> None:
    feed = following()
    put(feed, 0, [message(1)])
    feed.put(1, [message(4)], 9)
    put(feed, 9, [message(10)])
    assert feed.covers(0)
    assert sequences(feed.take(0, 9)) == [1, 4, 10]
    assert feed.covers(10)


def test_at_most_so_many_are_taken_and_the_rest_waits() -> None:
    feed = following()
    put(feed, 0, [message(1), message(2), message(3)])
    assert sequences(feed.take(0, 2)) == [1, 2]
    assert feed.arrived.is_set()
    assert sequences(feed.take(2, 2)) == [3]
    assert not feed.arrived.is_set()


def test_a_feed_that_begins_anew_is_another_generation() -> None:
    feed = following()
    put(feed, 0, [message(1)])
    before = feed.generation
    put(feed, 1, [message(2)])
    assert feed.generation == before
    put(feed, 3, [message(4)])
    assert feed.generation == before + 1
    feed.end()
    assert feed.generation == before + 2


def test_the_oldest_are_dropped_when_too_many_bytes_wait() -> None:
    feed = following(max_bytes=5)
    put(feed, 0, [message(1, size=3), message(2, size=3), message(3, size=2)])
    assert not feed.covers(0)
    assert sequences(feed.take(1, 9)) == [2, 3]


async def nothing() -> int:
    return 0


def lease_of(client: Connection, name: str) -> Lease:
    return Lease(*(client, NAMES.telemetry, name, [PATTERN]), failover_seconds=3, timeout_seconds=1, covered=nothing)


class Tasks:
    """Two tasks that read the same, the second from a position of its own."""

    def __init__(self, client: Connection, feed: Feed) -> None:
        self._client, self.feed = client, feed
        self.leases = {second: lease_of(client, f"c{second:d}") for second in (False, True)}
        self.sent = 0

    async def publish(self, count: int) -> list[bytes]:
        payloads = [b"%d" % number for number in range(self.sent, self.sent + count)]
        self.sent += count
        for payload in payloads:
            await self._client.jetstream().publish(NAMES.of("samples", "n"), payload)
        return payloads

    async def reader(self, *, second: bool, after: Mark = Mark(0)) -> LeasedReader:  # noqa: B008
        lease = self.leases[second]
        if not lease.held:
            await lease.acquire()
        return feeds.reader(self._client, lease, self.feed, second=second, after=after, batch=100)

    async def delivered(self, *, second: bool) -> int:
        """Return how many messages the server has sent to a task's consumer since it was last moved."""
        info = await self._client.jetstream().consumer_info(NAMES.telemetry, self.leases[second].consumer)
        assert info.delivered is not None
        return int(info.delivered.consumer_seq)


async def read(reader: LeasedReader, count: int) -> list[bytes]:
    messages: list[bytes] = []
    async with asyncio.timeout(10):
        while len(messages) < count:
            messages += [each.data for each in await reader.read(timeout_seconds=0.05)]
    return messages


@asynccontextmanager
async def tasks(client: Connection, *, max_bytes: int = 1000) -> AsyncIterator[Tasks]:
    both = Tasks(client, Feed(PATTERN, max_bytes))
    yield both
    for lease in both.leases.values():
        await lease.release()


async def test_the_second_task_reads_what_was_there_itself_and_then_takes_what_the_first_reads(
    server: Server, client: Connection
) -> None:
    async with tasks(client) as both, AsyncExitStack() as stack:
        before = await both.publish(5)
        second = await stack.enter_async_context(await both.reader(second=True))
        assert await read(second, 5) == before
        first = await stack.enter_async_context(await both.reader(second=False))
        assert await read(first, 5) == before
        for _ in range(3):
            fresh = await both.publish(4)
            assert await read(first, 4) == fresh
            assert await read(second, 4) == fresh
        assert second.mark == first.mark
        assert await both.delivered(second=False) == both.sent
        assert await both.delivered(second=True) < both.sent


async def test_nothing_is_missed_or_read_twice_when_the_first_task_ends_begins_again_and_runs_ahead(
    server: Server, client: Connection
) -> None:
    async with tasks(client, max_bytes=30) as both, AsyncExitStack() as stack:
        wanted = await both.publish(3)
        second = await stack.enter_async_context(await both.reader(second=True))
        async with await both.reader(second=False) as first:
            assert await read(first, 3) == wanted
            assert await read(second, 3) == wanted
            wanted = await both.publish(2)
            mark = first.mark
        assert await read(second, 2) == wanted
        async with await both.reader(second=False, after=Mark(1)) as first:
            await read(first, mark.sequence - 1)
            assert await second.read(timeout_seconds=0.05) == []
            wanted = await both.publish(40)  # more than waits at most
            await read(first, 40)
            assert await read(second, 40) == wanted
            wanted = await both.publish(1)
            await read(first, 1)
            assert await read(second, 1) == wanted
    assert both.sent == 46


@pytest.mark.slow
async def test_a_second_task_that_is_fed_notices_that_its_lease_is_lost(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leased, "_VERIFY_SECONDS", 0.2)
    async with tasks(client) as both, AsyncExitStack() as stack, connect(server) as other:
        await both.publish(1)
        second = await stack.enter_async_context(await both.reader(second=True))
        first = await stack.enter_async_context(await both.reader(second=False))
        for reader in (first, second):
            await read(reader, 1)
        await both.publish(1)
        for reader in (first, second):
            await read(reader, 1)
        thief = lease_of(other, both.leases[True].consumer)
        stealing = asyncio.create_task(thief.acquire())
        await asyncio.sleep(0.1)
        verb = f"CONSUMER.UNPIN.{NAMES.telemetry}.{both.leases[True].consumer}"
        await api.request(other, verb, {"group": "owner"}, 1)
        await stealing
        with pytest.raises(Lost, match="pinned to another client"):
            await read(second, 1)
        both.leases[True].forget()
        await thief.release()


async def test_a_second_task_that_is_fed_notices_that_the_server_came_back_with_less(
    server: Server, client: Connection
) -> None:
    """Sequences that both have read belong to other messages then, and the first task begins again before them."""
    async with tasks(client) as both, AsyncExitStack() as stack:
        await both.publish(2)
        second = await stack.enter_async_context(await both.reader(second=True))
        async with await both.reader(second=False) as first:
            for reader in (first, second):
                await read(reader, 2)
            await both.publish(2)
            for reader in (first, second):
                await read(reader, 2)
            position = first.position
        second._progress.stored_us -= 1_000_000  # the server has stored another message there, later
        put(both.feed, position - 2, [message(position - 1), message(position), message(position + 1)])
        assert both.feed.covers(second.position)
        with pytest.raises(SetBack):
            await read(second, 1)


async def test_a_second_task_that_is_fed_notices_that_its_consumer_is_gone(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leased, "_VERIFY_SECONDS", 0.2)
    async with tasks(client) as both, AsyncExitStack() as stack:
        await both.publish(1)
        second = await stack.enter_async_context(await both.reader(second=True))
        first = await stack.enter_async_context(await both.reader(second=False))
        for _ in range(2):
            await read(first, 1)
            await read(second, 1)
            await both.publish(1)
        await client.jetstream().delete_consumer(NAMES.telemetry, both.leases[True].consumer)
        with pytest.raises(Lost, match="not found"):
            await read(second, 2)
