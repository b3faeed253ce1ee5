"""Pull consumers: order, acknowledgement, redelivery, reset, and the answer to a request that gets nothing."""

import pytest
from nats.aio.client import Client

from tests.behaviour.conftest import Bus
from tests.support.server.raw import (
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


async def test_a_consumer_begins_where_its_request_says(client: Client) -> None:
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


async def test_a_request_that_gets_nothing_learns_why(client: Client) -> None:
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
