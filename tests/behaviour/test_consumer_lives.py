"""Lives of pull consumers: made once, reset, left, and what survives the server."""

import asyncio

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.reading.reader import Reader
from tests.behaviour.conftest import Bus
from tests.support.server.raw import (
    SECOND,
    Puller,
    api,
    consumer,
    error,
    eventually,
    fill,
    places,
    publish,
    stream,
    times,
)


async def test_a_reset_begins_again_at_a_sequence(client: Client) -> None:
    await stream(client)
    await fill(client, 5)
    await consumer(client, "c")
    puller = Puller(client, "c")
    await puller.ask(4)
    await puller.take(4)
    answer = await api(client, "CONSUMER.RESET.S.c", {"seq": 3})
    assert answer["reset_seq"] == 3
    assert answer["delivered"]["consumer_seq"] == 0
    assert answer["num_pending"] == 3
    await puller.ask(9)
    assert places(await puller.take(3)) == [(3, 1), (4, 2), (5, 3)]
    await api(client, "CONSUMER.RESET.S.c", {"seq": 100})
    await fill(client, 1, first=6)
    assert await puller.nothing()


async def test_a_reset_frees_what_was_not_acknowledged_and_never_goes_below_the_start(client: Client) -> None:
    await stream(client)
    await fill(client, 5)
    await consumer(client, "c", ack_policy="all", deliver_policy="by_start_sequence", opt_start_seq=2)
    puller = Puller(client, "c")
    await puller.ask(3)
    await puller.take(3)
    assert error(await api(client, "CONSUMER.RESET.S.c", {"seq": 1})) == 10204
    await api(client, "CONSUMER.RESET.S.c", {"seq": 2})
    await puller.ask(4)
    messages = await puller.take(4)
    assert places(messages) == [(2, 1), (3, 2), (4, 3), (5, 4)]
    assert [times(message) for message in messages] == [1, 1, 1, 1]


async def test_the_same_consumer_is_made_once_and_never_changed_behind_our_back(client: Client) -> None:
    await stream(client)
    first = await consumer(client, "c", filter_subjects=["s.a"])
    assert (await consumer(client, "c", filter_subjects=["s.a"]))["created"] == first["created"]
    other = {"durable_name": "c", "ack_policy": "all", "filter_subjects": ["s.a"]}
    body = {"stream_name": "S", "config": other, "action": "create"}
    assert error(await api(client, "CONSUMER.CREATE.S.c", body)) == 10148
    started = {**other, "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": 2}
    body = {"stream_name": "S", "config": started}
    assert error(await api(client, "CONSUMER.CREATE.S.c", body)) == 10012
    body = {"stream_name": "S", "config": {"deliver_policy": "last_per_subject"}}
    assert error(await api(client, "CONSUMER.CREATE.S", body)) == 10094
    assert (await api(client, "CONSUMER.NAMES.S"))["consumers"] == ["c"]


async def test_an_unused_consumer_without_a_name_goes_away(client: Client) -> None:
    await stream(client)
    await consumer(client, inactive_threshold=SECOND // 4)
    used = Puller(client, (await consumer(client, inactive_threshold=SECOND // 4))["name"])
    await used.ask(1, expires=10)

    async def left() -> bool:
        return len((await api(client, "CONSUMER.NAMES.S"))["consumers"]) == 1

    await eventually(left)
    await fill(client, 1)
    assert places(await used.take(1)) == [(1, 1)]


async def test_who_has_left_gets_nothing_and_loses_nothing(client: Client) -> None:
    await stream(client)
    await consumer(client, "c")
    gone, here = Puller(client, "c"), Puller(client, "c")
    await gone.ask(10)
    await gone.leave()
    await here.ask(10)
    await fill(client, 3)
    assert places(await here.take(3)) == [(1, 1), (2, 2), (3, 3)]


async def test_requests_take_turns(client: Client) -> None:
    await stream(client)
    await consumer(client, "c")
    first, two = Puller(client, "c"), Puller(client, "c")
    await first.ask(2)
    await client.flush()
    await two.ask(2)
    await client.flush()
    await fill(client, 4)
    assert places(await first.take(2)) == [(1, 1), (3, 3)]
    assert places(await two.take(2)) == [(2, 2), (4, 4)]


async def test_a_durable_consumer_survives_the_server_and_one_in_memory_does_not(bus: Bus) -> None:
    async with bus.connect() as client:
        await leave_two_consumers(client)
    await bus.kill()
    await bus.start()
    async with bus.connect() as client:
        assert (await api(client, "CONSUMER.NAMES.S"))["consumers"] == ["disk"]
        heir = Puller(client, "disk")
        await heir.ask(2)
        assert [sequence for sequence, _ in places(await heir.take(2))] == [3, 4]


async def leave_two_consumers(client: Client) -> None:
    await stream(client)
    await fill(client, 4)
    await consumer(client, "disk", ack_policy="all")
    await consumer(client, "memory", mem_storage=True)
    puller = Puller(client, "disk")
    await puller.ask(2)
    last = (await puller.take(2))[1]
    await client.request(last.reply, b"+ACK", timeout=2)
    await asyncio.sleep(0.3)  # the real server writes a consumer's state behind its back


@pytest.mark.slow
async def test_a_reader_closes_every_hole_that_kills_tear(bus: Bus) -> None:
    seen: list[int] = []

    async def read(client: Client) -> None:
        async with Reader(client, "S", ["s.*"], timeout_seconds=1) as reader:
            while len(seen) < 300:
                seen.extend(int(message.data) for message in await reader.read(timeout_seconds=1))

    async with asyncio.timeout(30), bus.connect() as client, bus.connect() as writer:
        await stream(client, allow_direct=True)
        reading = asyncio.create_task(read(client))
        kills = [200, 100]
        for number in range(1, 301):
            if number in kills:
                kills.remove(number)
                await bus.kill()
                await bus.start()
            await publish_until_stored(writer, number)
        await reading
    assert seen == list(range(1, 301))


async def publish_until_stored(client: Client, number: int) -> None:
    while True:
        try:
            answer = await publish(client, "s.a", b"%d" % number, Nats_Msg_Id=f"n{number}")
        except (nats.errors.Error, TimeoutError, OSError):
            await asyncio.sleep(0.02)
        else:
            assert "error" not in answer
            return


def test_the_helpers_read_what_the_server_sends() -> None:
    message = Msg(None, "s.a", "$JS.ACK.S.c.2.17.4.1700000000.9", b"")  # type: ignore[arg-type] # no client needed
    assert (places([message]), times(message)) == ([(17, 4)], 2)
