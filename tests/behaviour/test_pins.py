"""Pinned consumers: one owner at a time, and what happens to the one before."""

import asyncio
import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.behaviour.conftest import Bus
from tests.support.server.raw import SECOND, Answer, Puller, api, consumer, error, eventually, fill, pin, places, stream

WRONG = "423 Nats-Wrong-Pin-Id"


async def group(client: Client, *, timeout_seconds: float = 5, **more: object) -> None:
    await stream(client)
    await consumer(
        client,
        "c",
        priority_policy="pinned_client",
        priority_groups=["g"],
        priority_timeout=int(timeout_seconds * SECOND),
        **more,
    )


async def holder(client: Client) -> str:
    """Return the pin that the server says is in force; empty: none."""
    about = await api(client, "CONSUMER.INFO.S.c")
    assert about["priority_groups"][0]["group"] == "g"
    client_id: str = about["priority_groups"][0].get("pinned_client_id", "")
    return client_id


async def test_one_client_gets_everything_and_the_other_waits(client: Client) -> None:
    await group(client)
    owner, standby = Puller(client, "c", "g"), Puller(client, "c", "g")
    await owner.ask(2)
    await client.flush()
    await standby.ask(10)
    assert await holder(client) == ""
    await fill(client, 4)
    messages = await owner.take(2)
    assert places(messages) == [(1, 1), (2, 2)]
    mine = pin(messages[0])
    assert await holder(client) == mine == pin(messages[1])
    assert await standby.nothing()
    await owner.ask(2, id=mine)
    assert places(await owner.take(2)) == [(3, 3), (4, 4)]
    assert await standby.nothing()


async def test_the_server_gives_no_pin_while_there_is_nothing_to_read(client: Client) -> None:
    await group(client)
    puller = Puller(client, "c", "g")
    await puller.ask(1, expires=0.3)
    assert await puller.status() == "408 Request Timeout"
    assert await holder(client) == ""


async def test_a_wrong_pin_is_refused_at_once_while_another_is_in_force(client: Client) -> None:
    await group(client)
    await fill(client, 2)
    owner, zombie = Puller(client, "c", "g"), Puller(client, "c", "g")
    await owner.ask(1)
    await owner.take(1)
    await zombie.ask(1, id="old")
    assert await zombie.status() == "423 Nats-Pin-Id mismatch"


async def test_an_unpinned_owner_learns_it_and_the_other_goes_on(client: Client) -> None:
    await group(client)
    await fill(client, 1)
    owner, standby = Puller(client, "c", "g"), Puller(client, "c", "g")
    await owner.ask(1)
    old = pin((await owner.take(1))[0])
    await owner.ask(5, id=old)
    await client.flush()
    await standby.ask(5)
    await client.flush()
    assert await api(client, "CONSUMER.UNPIN.S.c", {"group": "g"}) == {
        "type": "io.nats.jetstream.api.v1.consumer_unpin_response"
    }
    await fill(client, 2, first=2)
    messages = await standby.take(2)
    assert places(messages) == [(2, 2), (3, 3)]
    assert pin(messages[0]) != old
    assert await owner.status() == WRONG
    assert error(await api(client, "CONSUMER.UNPIN.S.c", {"group": "h"})) == 10160
    assert error(await api(client, "CONSUMER.UNPIN.S.x", {"group": "g"})) == 10014


@pytest.mark.slow
@pytest.mark.cases
async def test_an_owner_that_asks_for_nothing_loses_its_pin_in_time(client: Client) -> None:
    await group(client, timeout_seconds=0.6)
    await fill(client, 1)
    owner, standby = Puller(client, "c", "g"), Puller(client, "c", "g")
    await owner.ask(1)
    old = pin((await owner.take(1))[0])
    await standby.ask(5, expires=8)
    await fill(client, 1, first=2)
    for _ in range(4):  # each request proves that it lives
        await owner.ask(1, expires=0.05, id=old)
        await asyncio.sleep(0.3)
    assert await holder(client) == old
    assert await standby.nothing(0)
    await fill(client, 1, first=3)
    assert places(await standby.take(1))[0][0] == 3
    late = Puller(client, "c", "g")
    await late.ask(1, id=old)
    assert await late.status() == "423 Nats-Pin-Id mismatch"


async def test_a_dead_owners_messages_come_after_newer_ones_unless_its_heir_resets(client: Client, bus: Bus) -> None:
    await group(client, timeout_seconds=0.3, ack_policy="all", ack_wait=SECOND)
    await fill(client, 4)
    async with bus.connect() as dying:
        owner = Puller(dying, "c", "g")
        await owner.ask(2)
        await owner.take(2)
    heir = Puller(client, "c", "g")
    await heir.ask(1, expires=8)
    (first,) = await heir.take(1)
    assert places([first]) == [(3, 3)]
    await api(client, "CONSUMER.RESET.S.c", {"seq": 1})
    assert await holder(client) == pin(first)
    await heir.ask(4, id=pin(first))
    assert places(await heir.take(4)) == [(1, 1), (2, 2), (3, 3), (4, 4)]


async def test_a_request_must_name_the_group(client: Client) -> None:
    await group(client)
    for named, answer in (
        ("", "400 Bad Request - Priority Group missing"),
        ("h", "400 Bad Request - Invalid Priority Group"),
    ):
        puller = Puller(client, "c", named)
        await puller.ask(1)
        assert await puller.status() == answer


async def test_changes_of_owners_are_reported(client: Client) -> None:
    messages: list[Msg] = []

    async def tell(message: Msg) -> None:
        messages.append(message)

    await client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.S.c", cb=tell)
    await group(client, timeout_seconds=0.3)
    await fill(client, 1)
    puller = Puller(client, "c", "g")
    await puller.ask(1)
    mine = pin((await puller.take(1))[0])

    def pinnings() -> list[tuple[str, Answer]]:
        advisories = [(message.subject.split(".")[4], json.loads(message.data)) for message in messages]
        return [(event, about) for event, about in advisories if event.endswith("PINNED")]

    async def heard() -> bool:
        return len(pinnings()) == 2

    await eventually(heard)
    (first, pinned), (second, unpinned) = pinnings()
    assert (first, pinned["group"], pinned["pinned_id"]) == ("PINNED", "g", mine)
    assert (second, unpinned["consumer"], unpinned["reason"]) == ("UNPINNED", "c", "timeout")


async def test_a_pin_dies_with_the_server(bus: Bus) -> None:
    async with bus.connect() as client:
        await group(client)
        await fill(client, 1)
        puller = Puller(client, "c", "g")
        await puller.ask(1)
        old = pin((await puller.take(1))[0])
        await asyncio.sleep(0.2)  # the real server writes a consumer's state behind its back
    await bus.kill()
    await bus.start()
    async with bus.connect() as client:
        assert await holder(client) == ""
        await fill(client, 1, first=2)
        zombie, heir = Puller(client, "c", "g"), Puller(client, "c", "g")
        await zombie.ask(1, id=old)
        assert await zombie.status() == WRONG
        await heir.ask(1)
        (message,) = await heir.take(1)
        assert pin(message) != old
