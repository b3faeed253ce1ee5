"""Batches of several tasks that share one atomic batch, while the server is killed."""

import asyncio
import json

import pytest
from nats.aio.client import Client

from bus.publishing import batch
from bus.publishing.group_commit import GroupCommit
from bus.reading.progress import Received
from bus.reading.reader import Reader
from schemas import codec
from schemas.messages.estimate import Cursor
from schemas.subject import Names
from tests.conftest import NatsServer

NAMES = Names()
TASKS, ROWS, LEAST = 4, 10, 15


@pytest.mark.slow
async def test_rows_of_every_task_are_stored_once_and_in_order_although_the_server_is_killed(
    client: Client, nats_server: NatsServer
) -> None:
    group = GroupCommit(client, NAMES.estimates, interval_seconds=0.05)
    disturbed = asyncio.Event()

    async def disturb() -> None:
        for _ in range(3):
            await asyncio.sleep(0.4)
            await asyncio.to_thread(nats_server.kill)
            await asyncio.to_thread(nats_server.start)
        disturbed.set()

    turns = dict.fromkeys(map(str, range(TASKS)), 0)

    async def task(name: str) -> None:
        expected = number = 0
        while not disturbed.is_set() or number < LEAST:
            number += 1
            rows = [batch.Row(NAMES.node("smoothed", f"{name}-{index}"), b"%d" % number) for index in range(ROWS)]
            cursor = codec.encode(Cursor(stream="s", created="c", sequence=number))
            expected = await group.publish(
                rows, batch.Row(NAMES.of("cursor", name), cursor), expected, timeout_seconds=1
            )
        turns[name] = number

    async with asyncio.timeout(60):
        await asyncio.gather(*map(task, turns), disturb())
    wanted, stored = sum(turns.values()) * (ROWS + 1), list[Received]()
    async with (
        asyncio.timeout(30),
        Reader(client, NAMES.estimates, [NAMES.of("smoothed", "*"), NAMES.of("cursor", "*")]) as reader,
    ):
        while len(stored) < wanted:
            stored += await reader.read(timeout_seconds=1)
        assert await reader.read(timeout_seconds=0.3) == []
    assert len(stored) == wanted
    for name, count in turns.items():
        cursors = [json.loads(each.data)["sequence"] for each in stored if each.subject.endswith(f"cursor.{name}")]
        assert cursors == list(range(1, count + 1))
        for index in range(ROWS):
            rows = [int(each.data) for each in stored if each.subject.endswith(f"smoothed.{name}-{index}")]
            assert rows == list(range(1, count + 1))
