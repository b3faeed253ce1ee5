"""Pull consumers: order, acknowledgement, redelivery, reset, and what a request is told when it gets nothing."""

import asyncio

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.reading.reader import Reader
from tests.behaviour.conftest import Bus
from tests.support.raw import (
    SECOND,
    Answer,
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


async def test_messages_come_in_order_without_a_hole(client: Client) -> None:
    await stream(client)
    await fill(client, 50)
    await publish(client, "cursor")
    await fill(client, 50, "s.b", 51)
    await consumer(client, "c", filter_subjects=["s.*"])
    puller = Puller(client, "c")
    await puller.ask(30)
    await puller.ask(200)
    messages = await puller.take(100)
    assert [int(message.data) for message in messages] == list(range(1, 101))
    assert places(messages)[49:51] == [(50, 50), (52, 51)]
    await publish(client, "s.a", b"later")
    assert [message.data for message in await puller.take(1)] == [b"later"]


async def test_a_consumer_begins_where_it_is_told_to(client: Client) -> None:
    await stream(client)
    for subject in ("s.a", "s.b", "s.a", "s.c", "s.b"):
        await publish(client, subject)
    wanted: dict[str, tuple[Answer, list[int]]] = {
        "all": ({}, [1, 2, 3, 4, 5, 6]),
        "by_start_sequence": ({"opt_start_seq": 3}, [3, 4, 5, 6]),
        "last_per_subject": ({"filter_subject": "s.*"}, [3, 4, 5, 6]),
        "new": ({}, [6]),
    }
    pullers = []
    for policy, (more, _) in wanted.items():
        made = await consumer(client, deliver_policy=policy, **more)
        pullers.append(Puller(client, made["name"]))
    await publish(client, "s.a")
    for puller, (_, sequences) in zip(pullers, wanted.values(), strict=True):
        await puller.ask(10)
        assert [sequence for sequence, _ in places(await puller.take(len(sequences)))] == sequences
        assert await puller.nothing(0.05)


async def test_the_newest_of_each_subject_stay_the_newest_while_they_are_read(client: Client) -> None:
    await stream(client, max_msgs_per_subject=1)
    for subject in ("s.a", "s.b", "s.c"):
        await publish(client, subject)
    made = await consumer(client, deliver_policy="last_per_subject", filter_subject="s.*")
    puller = Puller(client, made["name"])
    await puller.ask(1)
    assert places(await puller.take(1)) == [(1, 1)]
    await publish(client, "s.b")
    await puller.ask(10)
    seen = [sequence for sequence, _ in places(await puller.take(2))]
    assert seen == [3, 4]


@pytest.mark.cases
async def test_what_nobody_acknowledged_comes_again_after_newer_messages(client: Client, bus: Bus) -> None:
    await stream(client)
    await fill(client, 4)
    await consumer(client, "c", ack_policy="all", ack_wait=SECOND)
    async with bus.connect() as owner:
        dying = Puller(owner, "c")
        await dying.ask(2)
        assert places(await dying.take(2)) == [(1, 1), (2, 2)]
    heir = Puller(client, "c")
    await heir.ask(10)
    messages = await heir.take(4)
    assert places(messages) == [(3, 3), (4, 4), (1, 5), (2, 6)]
    assert [times(message) for message in messages] == [1, 1, 2, 2]


@pytest.mark.cases
async def test_an_acknowledgement_of_all_covers_what_was_before(client: Client) -> None:
    await stream(client)
    await fill(client, 6)
    await consumer(client, "c", ack_policy="all", ack_wait=SECOND)
    puller = Puller(client, "c")
    await puller.ask(4)
    messages = await puller.take(4)
    await client.publish(messages[2].reply)
    about = await settled(client, 1)
    assert about["ack_floor"] == {"consumer_seq": 3, "stream_seq": 3}
    await puller.ask(3)
    assert [times(message) for message in await puller.take(3)] == [1, 1, 2]
    again = await settled(client, 3)
    assert again["num_redelivered"] == 1
    assert again["delivered"]["consumer_seq"] == 7


async def settled(client: Client, unacknowledged: int) -> Answer:
    about: Answer = {}

    async def reached() -> bool:
        nonlocal about
        about = await api(client, "CONSUMER.INFO.S.c")
        for part in ("delivered", "ack_floor"):
            about[part].pop("last_active", None)
        return bool(about["num_ack_pending"] == unacknowledged)

    await eventually(reached)
    return about


async def test_single_acknowledgements_leave_what_is_between_them(client: Client) -> None:
    await stream(client)
    await fill(client, 4)
    await consumer(client, "c", ack_policy="explicit", ack_wait=SECOND // 4)
    puller = Puller(client, "c")
    await puller.ask(4)
    first, second, third, fourth = await puller.take(4)
    for message in (first, third):
        await client.publish(message.reply, b"+ACK")
    about = await settled(client, 2)
    assert about["ack_floor"] == {"consumer_seq": 1, "stream_seq": 1}
    await puller.ask(2)
    assert [sequence for sequence, _ in places(await puller.take(2))] == [2, 4]
    for message in (second, fourth):
        await client.publish(message.reply)
    assert (await settled(client, 0))["ack_floor"]["stream_seq"] == 4


async def test_nothing_more_is_sent_than_may_be_unacknowledged(client: Client) -> None:
    await stream(client)
    await fill(client, 5)
    await consumer(client, "c", ack_policy="all", max_ack_pending=2)
    puller = Puller(client, "c")
    await puller.ask(5)
    messages = await puller.take(2)
    assert await puller.nothing()
    await client.publish(messages[1].reply)
    assert places(await puller.take(2)) == [(3, 3), (4, 4)]


async def test_without_acknowledgements_nothing_comes_twice(client: Client) -> None:
    await stream(client)
    await fill(client, 3)
    await consumer(client, "c")
    puller = Puller(client, "c")
    await puller.ask(2)
    await puller.take(2)
    about = await api(client, "CONSUMER.INFO.S.c")
    assert (about["num_ack_pending"], about["num_pending"]) == (0, 1)
    assert (about["delivered"]["stream_seq"], about["ack_floor"]["stream_seq"]) == (2, 2)
    await puller.ask(9, expires=0.4)
    assert places(await puller.take(1)) == [(3, 3)]
    assert await puller.status() == "408 Request Timeout"


async def test_a_request_that_gets_nothing_is_told_why(client: Client) -> None:
    await stream(client)
    await consumer(client, "c")
    puller = Puller(client, "c")
    await puller.ask(1, expires=0, no_wait=True)
    assert await puller.status() == "404 No Messages"
    await puller.ask(3, expires=0.2)
    (message,) = await puller.take(1)
    headers = message.headers or {}
    assert (headers["Status"], headers["Nats-Pending-Messages"]) == ("408", "3")
    await fill(client, 2)
    await puller.ask(5, expires=0, no_wait=True)
    await puller.take(2)
    assert await puller.status() == "404 No Messages"
    await puller.ask(1, expires=0.1, idle_heartbeat=SECOND)
    assert (await puller.status()).startswith("400 Bad Request")
    gone = Puller(client, "nobody")
    await gone.ask(1)
    assert (await gone.status()).startswith("503")
    await puller.ask(1)

    async def waiting() -> bool:
        return bool((await api(client, "CONSUMER.INFO.S.c"))["num_waiting"] == 1)

    await eventually(waiting)
    await api(client, "CONSUMER.DELETE.S.c")
    assert await puller.status() == "409 Consumer Deleted"
    assert error(await api(client, "CONSUMER.DELETE.S.c")) == 10014


async def test_a_waiting_request_gets_signs_of_life_with_the_place_reached(client: Client) -> None:
    await stream(client)
    await fill(client, 3)
    await consumer(client, "c", deliver_policy="by_start_sequence", opt_start_seq=2)
    puller = Puller(client, "c")
    await puller.ask(9, expires=2, idle_heartbeat=SECOND // 5)
    await puller.take(2)
    (beat,) = await puller.take(1, 1)
    headers = beat.headers or {}
    assert (headers["Status"], headers["Description"]) == ("100", "Idle Heartbeat")
    assert (headers["Nats-Last-Consumer"], headers["Nats-Last-Stream"]) == ("2", "3")


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
