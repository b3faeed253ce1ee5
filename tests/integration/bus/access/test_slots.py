"""Only the processors reach the consumer of a lease: tried with each role on a real server, from both sides."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client

from bus import api, connection, stream
from bus.reading import pin, slot
from bus.reading.lease import Lease
from bus.reading.leased import LeasedReader
from bus.reading.reader import Reader
from schemas import request, role
from schemas.subject import matches
from tests.support.server.secured import NAMES, Secured, attacker, secured

STREAMS = tuple(request.stored_name(store, NAMES) for store in request.LEASED)
LEASE = "process-0"


def role_of(name: str) -> role.Role:
    (own,) = (each for each in role.ROLES if each.name == name)
    return own


def reads(name: str, kept: str) -> bool:
    """Tell whether a role has slots on a stream."""
    own = role_of(name)
    return own.apart and f"{request.API}CONSUMER.CREATE.{kept}.*" in own.grant(NAMES).publish


SERVICES = [(each.name, kept) for each in role.ROLES for kept in STREAMS if reads(each.name, kept)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as server:
        asyncio.run(_create(server))
        yield server


async def _create(server: Secured) -> None:
    settings = server.settings("process")
    async with connection.connect(settings, "setup") as client:
        await stream.ensure(client, settings)


async def nothing() -> int:
    return 0


def lease_of(client: Client, kept: str) -> Lease:
    return Lease(
        *(client, kept, LEASE, ["spazio.>"]),
        failover_seconds=30,
        timeout_seconds=1,
        covered=nothing,
    )


async def refused(client: Client, subject: str, body: Any) -> bool:
    """Tell whether a request has no answer, or an error as its answer."""
    try:
        answer = await client.request(subject, json.dumps(body).encode(), timeout=0.3)
    except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
        return True
    return "error" in json.loads(answer.data)


def test_every_service_that_reads_a_stream_of_leases_has_slots_and_no_other_way() -> None:
    assert {name for name, _ in SERVICES} == {
        *("cache", "history", "metrics", "extender", "kubernetes", "dashboard", "watch", "load", "reader"),
    }
    for each in role.ROLES:
        for kept in STREAMS:
            published = each.grant(NAMES).publish
            nameless = any(matches(own, f"{request.API}CONSUMER.CREATE.{kept}") for own in published)
            assert nameless == (each.name in ("process", "admin")), (each.name, kept)


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(("name", "kept"), SERVICES)
async def test_a_service_can_neither_make_nor_change_nor_use_nor_delete_the_consumer_of_a_lease(
    running: Secured, name: str, kept: str
) -> None:
    async with connection.connect(running.settings("process"), "process") as client, lease_of(client, kept) as lease:
        await client.jetstream().publish("spazio.subspace", b"{}")
        await client.jetstream().publish("spazio.availability.n1", b"{}")
        await asyncio.wait_for(lease.acquire(), 5)
        before = await lease._info()
        thief = await attacker(running, name, f"_INBOX_{name}")
        config = {**lease._config, "filter_subjects": ["spazio.model"]}
        other = {key: value for key, value in config.items() if key != "durable_name"}
        own, user = request.slots(name)[0], role_of(name)
        for verb, body in (
            (f"CONSUMER.CREATE.{kept}.{LEASE}", {"stream_name": kept, "config": config}),
            (f"CONSUMER.CREATE.{kept}.{LEASE}.spazio.model", {"stream_name": kept, "config": config}),
            (f"CONSUMER.DURABLE.CREATE.{kept}.{LEASE}", {"stream_name": kept, "config": config}),
            (f"CONSUMER.CREATE.{kept}", {"stream_name": kept, "config": other}),
            (f"CONSUMER.CREATE.{kept}.{own}", {"stream_name": kept, "config": config}),
            (f"CONSUMER.MSG.NEXT.{kept}.{LEASE}", {"batch": 1, "group": "owner", "no_wait": True}),
            (f"CONSUMER.UNPIN.{kept}.{LEASE}", {"group": "owner"}),
            (f"CONSUMER.RESET.{kept}.{LEASE}", {"seq": 1}),
            (f"CONSUMER.DELETE.{kept}.{LEASE}", {}),
        ):
            assert await refused(thief.client, user.subject(request.API + verb), body), verb
        # Of two names the server takes that in the subject.
        asked = json.dumps({"stream_name": kept, "config": other}).encode()
        subject = user.subject(f"{request.API}CONSUMER.CREATE.{kept}.{own}")
        answer = await thief.client.request(subject, asked, timeout=1)
        assert json.loads(answer.data)["name"] == own
        await thief.client.close()
        after = await lease._info()
        for field in ("config", "created"):
            assert after[field] == before[field], field
        assert lease._pin in pin.pins(await lease._info())
        async with LeasedReader(client, lease) as reader:
            assert await reader.read(timeout_seconds=2)


@pytest.mark.slow
async def test_as_many_readers_of_a_role_as_there_are_slots_read_everything_and_a_further_one_waits(
    running: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "_SLOTS", 4)  # of this role's names, as the account knows them
    async with contextlib.AsyncExitStack() as stack:
        settings = running.settings("history")
        client = await stack.enter_async_context(connection.connect(settings, "history"))
        writer = await stack.enter_async_context(connection.connect(running.settings("process"), "process"))
        sequence = (await writer.jetstream().publish(NAMES.subspace, b"before")).seq
        async with contextlib.AsyncExitStack() as open_readers:
            for _ in range(4):
                reader = Reader(client, NAMES.telemetry, [NAMES.subspace], after=sequence - 1, timeout_seconds=1)
                await open_readers.enter_async_context(reader)
                assert [each.data for each in await reader.read(timeout_seconds=2)] == [b"before"]
            with pytest.raises(slot.Full, match="4 readers of the role history"):
                await slot.create(client, NAMES.telemetry, {"ack_policy": "none"}, 1, unanswered=[])
            waiting = Reader(client, NAMES.telemetry, [NAMES.subspace], after=sequence - 1, timeout_seconds=1)
            await stack.enter_async_context(waiting)
            asked = asyncio.create_task(waiting.read())
            await asyncio.sleep(0.3)
            assert not asked.done()
        assert [each.data for each in await asyncio.wait_for(asked, 5)] == [b"before"]


async def test_readers_that_begin_together_get_names_of_their_own(running: Secured) -> None:
    async with connection.connect(running.settings("extender"), "extender") as client:
        config = {"ack_policy": "none", "inactive_threshold": 10**9, "mem_storage": True}
        made = await asyncio.gather(*(slot.create(client, NAMES.estimates, config, 2, unanswered=[]) for _ in range(8)))
        names = {each["name"] for each in made}
        assert len(names) == 8
        assert names <= {*request.slots("extender")}


async def test_a_reader_to_which_the_server_answers_too_late_takes_one_name(
    running: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, late = api.request, [True] * 3

    async def answer(client: Client, verb: str, body: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
        result = await answered(client, verb, body, timeout_seconds)
        if late and late.pop():
            raise TimeoutError
        return result

    monkeypatch.setattr(api, "request", answer)
    config, asked = {"ack_policy": "none", "inactive_threshold": 10**9, "mem_storage": True}, list[slot.Config]()
    async with connection.connect(running.settings("metrics"), "metrics") as client:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await slot.create(client, NAMES.estimates, config, 2, unanswered=asked)
        made = await slot.create(client, NAMES.estimates, config, 2, unanswered=asked)
    async with connection.connect(running.settings("admin"), "admin") as admin:
        present = {each.name for each in await admin.jetstream().consumers_info(NAMES.estimates)}
    assert present & {*request.slots("metrics")} == {made["name"]}
    assert not asked


async def test_a_credential_of_before_still_reads_by_consumers_without_a_name(running: Secured) -> None:
    """As one of an administrator, of another program, or no credential at all."""
    async with connection.connect(running.settings("admin"), "admin") as client:
        assert not slot.needed(client, NAMES.telemetry)
        await client.jetstream().publish(NAMES.subspace, b"{}")
        async with Reader(client, NAMES.telemetry, [NAMES.subspace], timeout_seconds=1) as reader:
            assert await reader.read(timeout_seconds=2)
