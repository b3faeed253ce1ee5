"""What processors say while others keep the server from taking batches."""

import asyncio

import pytest

from bus.health import UNSTORED, Health
from bus.link import Connection
from bus.publishing import batch
from schemas.subject import Names

NAMES = Names()
SUBJECT = NAMES.of("shortage", "x")


async def begin(client: Connection, number: int) -> None:
    headers = {"Nats-Batch-Id": f"x{number}", "Nats-Batch-Sequence": "1"}
    await client.publish(SUBJECT, b"{}", headers=headers)


async def end(client: Connection, number: int) -> None:
    headers = {"Nats-Batch-Id": f"x{number}", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    await client.request(SUBJECT, b"{}", headers=headers)


@pytest.mark.parametrize("count", [0, 3])
async def test_batches_of_others_that_are_begun_and_not_ended_are_named_until_one_is_stored(
    client: Connection, count: int
) -> None:
    rows = [batch.Row(NAMES.node("smoothed", f"n{index}"), b"1") for index in range(count)]
    health, cursor = Health(), batch.Row(NAMES.of("cursor", "0"), b"a")
    assert batch.unstored(client) == UNSTORED
    for number in range(50):
        await begin(client, number)
    storing = asyncio.create_task(batch.publish(client, NAMES.estimates, rows, cursor, 0, timeout_seconds=1))
    async with asyncio.timeout(10):
        while batch.unstored(client) == UNSTORED:  # noqa: ASYNC110 # the server answers when it likes
            await asyncio.sleep(0.01)
    async with asyncio.timeout(10), health.within("part 0", 0.01, lambda: batch.unstored(client)):
        while not health.problems:  # noqa: ASYNC110 # health has no events
            await asyncio.sleep(0.01)
        assert f"refuses batches for {NAMES.estimates}" in health.problems["part 0"]
        disk, log, credential = map(health.problems["part 0"].index, ("disk is full", "its log", "stolen credential"))
        assert disk < log < credential
        await end(client, 0)
        await storing
    assert not health.problems
    assert batch.unstored(client) == UNSTORED
