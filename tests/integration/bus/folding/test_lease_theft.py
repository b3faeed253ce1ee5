"""Somebody who may read a stream pulls the messages of a processor's lease: it is noticed, and the pin ends."""

import asyncio
import json
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus import connection, stream
from bus.reading import lease as leases
from bus.reading import leased, pin
from bus.reading.lease import Lease, Lost
from bus.reading.leased import LeasedReader
from tests.support.server.secured import NAMES, attacker, secured

CONSUMER = "process-0"


async def nothing() -> int:
    return 0


def lease_of(client: Client) -> Lease:
    return Lease(
        *(client, NAMES.telemetry, CONSUMER, [NAMES.subspace]),
        failover_seconds=1,
        timeout_seconds=1,
        covered=nothing,
    )


async def pull(thief: Client) -> None:
    """Read the pin and pull messages under it, again and again."""
    await thief.subscribe("_INBOX_reader.stolen")
    while True:
        verb = f"$JS.API.CONSUMER.INFO.{NAMES.telemetry}.{CONSUMER}"
        for own in pin.pins(json.loads((await thief.request(verb, timeout=2)).data)):
            terms = {"batch": 100, "expires": 10**9, "group": "owner", "id": own}
            wanted = f"$JS.API.CONSUMER.MSG.NEXT.{NAMES.telemetry}.{CONSUMER}"
            await thief.publish(wanted, json.dumps(terms).encode(), reply="_INBOX_reader.stolen")
        await asyncio.sleep(0.05)


async def produce(client: Client) -> None:
    while True:
        await client.jetstream().publish(NAMES.subspace, b"{}")
        await asyncio.sleep(0.01)


async def read(client: Client, held: Lease) -> None:
    async with LeasedReader(client, held) as reader:
        await read_on(reader)


async def read_on(reader: LeasedReader) -> None:
    while True:
        await reader.read(timeout_seconds=0.1)


async def read_until_changed(reader: LeasedReader) -> None:
    with pytest.raises(Lost, match="somebody else has changed durable_name"):
        await read_on(reader)


@pytest.mark.slow
async def test_a_consumer_that_a_stranger_has_changed_is_made_again_and_what_it_missed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes a name in the body of a request to create a consumer without one, and changes that consumer."""
    monkeypatch.setattr(leased, "_VERIFY_SECONDS", 0.2)
    with secured(tmp_path) as running:
        async with connection.connect(running.settings("process"), "process") as client, asyncio.timeout(30):
            await stream.ensure(client, running.settings("process"))
            await client.jetstream().publish(NAMES.subspace, b"1")
            async with lease_of(client) as held:
                await held.acquire()
                async with LeasedReader(client, held) as reader:
                    assert [each.data for each in await reader.read()] == [b"1"]
                    thief = await attacker(running, "local", "_INBOX_reader")
                    config = {**held._config, "filter_subjects": [NAMES.model]}
                    del config["durable_name"]
                    body = json.dumps({"stream_name": NAMES.telemetry, "config": config}).encode()
                    verb = f"$JS.API.CONSUMER.CREATE.{NAMES.telemetry}"
                    changed = json.loads((await thief.client.request(verb, body, timeout=2)).data)
                    await thief.client.close()
                    assert changed["config"]["filter_subjects"] == [NAMES.model]
                    await client.jetstream().publish(NAMES.subspace, b"2")
                    await read_until_changed(reader)
            async with lease_of(client) as held:
                await held.acquire()
                async with LeasedReader(client, held, after=1) as reader:
                    assert [each.data for each in await reader.read()] == [b"2"]


@pytest.mark.slow
async def test_a_stranger_who_pulls_under_the_pin_of_a_lease_is_noticed_and_the_pin_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with secured(tmp_path) as running:
        settings, before = running.settings("process"), leases.CONTENDED._value.get()
        async with connection.connect(settings, "process") as client, asyncio.TaskGroup() as group:
            await stream.ensure(client, settings)
            thief = await attacker(running, "local", "_INBOX_reader")
            working = [group.create_task(produce(client))]
            async with asyncio.timeout(30), lease_of(client) as held:
                await held.acquire()
                former = held._pin
                working.append(group.create_task(pull(thief.client)))
                with pytest.raises(Lost, match="somebody else pulls"):
                    await read(client, held)
                assert former not in pin.pins(await held._info())
            for task in working:
                task.cancel()
            await thief.client.close()
        assert leases.CONTENDED._value.get() == before + 1
    assert "lease.contended" in [record.getMessage() for record in caplog.records]


def test_holes_far_apart_have_honest_causes_and_several_within_a_minute_have_none() -> None:
    holes = pin.Holes()
    assert not any(holes.add(100.0 * number) for number in range(20))
    assert [holes.add(10_000.0 + number) for number in range(8)] == [False, False, False, True] * 2
