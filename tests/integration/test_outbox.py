"""The outbox against a real nats-server: what no server takes, and several messages on their way at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from prometheus_client import REGISTRY

from bus.health import Health
from bus.publishing.outbox import Outbox
from bus.reading.reader import Reader
from schemas.subject import Names

NAMES = Names()
SUBJECT = NAMES.node("samples", "a")


def too_large() -> float:
    return REGISTRY.get_sample_value("spazio_publish_dropped_total", {"reason": "too_large"}) or 0.0


@asynccontextmanager
async def running(client: Client, *, in_flight: int = 1, timeout_seconds: float = 1) -> AsyncIterator[Outbox]:
    outbox = Outbox(client, Health(), limit=100, timeout_seconds=timeout_seconds, kind="samples", in_flight=in_flight)
    sending = asyncio.create_task(outbox.run())
    yield outbox
    sending.cancel()


async def stored(client: Client) -> list[bytes]:
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        found = []
        while messages := await reader.read(timeout_seconds=0.3):
            found += [message.data for message in messages]
    return found


@pytest.mark.parametrize("in_flight", [1, 4])
async def test_a_message_that_no_server_takes_is_dropped_and_counted_and_stops_no_other(
    client: Client, caplog: pytest.LogCaptureFixture, in_flight: int
) -> None:
    before = too_large()
    async with running(client, in_flight=in_flight) as outbox:
        outbox.put(SUBJECT, b"first", "first")
        outbox.put(SUBJECT, b"x" * (client.max_payload + 1), "large")
        outbox.put(SUBJECT, b"last", "last")
        assert await outbox.flush(10)
    assert await stored(client) == [b"first", b"last"]
    assert too_large() == before + 1
    said = [record.message for record in caplog.records if record.name == "bus.publishing.outbox"]
    assert said == ["message.dropped"]


async def test_several_messages_on_their_way_are_stored_in_their_order(client: Client) -> None:
    async with running(client, in_flight=8) as outbox:
        for number in range(50):
            outbox.put(SUBJECT, b"%d" % number, f"id{number}")
        assert await outbox.flush(10)
    assert await stored(client) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("in_flight", [1, 3])
async def test_so_many_messages_are_sent_before_the_first_is_stored_and_no_more(client: Client, in_flight: int) -> None:
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("apart.*", cb=arrived.put)  # stands for a stream that is slow to answer
    async with running(client, in_flight=in_flight, timeout_seconds=20) as outbox:
        for number in range(6):
            outbox.put("apart.a", b"%d" % number, f"id{number}")
        for sent in range(0, 6, in_flight):
            waiting = [await asyncio.wait_for(arrived.get(), 5) for _ in range(in_flight)]
            assert [message.data for message in waiting] == [b"%d" % number for number in range(sent, sent + in_flight)]
            await client.flush()
            await asyncio.sleep(0.05)
            assert arrived.empty()
            for message in waiting:
                await message.respond(json.dumps({"stream": "APART", "seq": sent + 1}).encode())
        assert await outbox.flush(5)


async def test_what_was_sent_behind_a_message_that_was_refused_is_sent_again_with_it(client: Client) -> None:
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    refusal = json.dumps({"error": {"code": 503, "err_code": 10077, "description": "full"}}).encode()
    await client.subscribe("apart.*", cb=arrived.put)
    async with running(client, in_flight=3, timeout_seconds=20) as outbox:
        for number in range(3):
            outbox.put("apart.a", b"%d" % number, f"id{number}")
        taken = json.dumps({"stream": "APART", "seq": 1}).encode()
        for answer in (taken, refusal, taken):
            await (await asyncio.wait_for(arrived.get(), 5)).respond(answer)
        again = [await asyncio.wait_for(arrived.get(), 5) for _ in range(2)]
        assert [(message.data, (message.headers or {})["Nats-Msg-Id"]) for message in again] == [
            (b"1", "id1"),
            (b"2", "id2"),
        ]
        for message in again:
            await message.respond(taken)
        assert await outbox.flush(5)
    assert arrived.empty()
