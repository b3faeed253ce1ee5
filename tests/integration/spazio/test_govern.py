"""The governor on a real server: whom it governs, what it says when it cannot, and evictions through an API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from nats.aio.client import Client

from bus import connection, errors, stream
from bus.connection import Connection
from bus.health import Health
from producers import clock as grid
from producers.pods.census import Census
from schemas import codec
from schemas.live import Live
from schemas.messages.facts import PodFacts
from schemas.settings import Settings
from schemas.subject import Names, token
from spazio.governing.directory import Directory
from spazio.governing.governor import Governor
from spazio.governing.journal import Journal
from spazio.governing.limiter import Limiter
from spazio.governing.observer import Observer
from spazio.governing.service import Service
from spazio.service.service import Context
from tests.integration.kube.api_server import kubeconfig
from tests.support.background import background
from tests.support.governed import Knobs, layout
from tests.support.machine import MIB, Host, container
from tests.support.server.natsd import Natsd
from tests.support.server.secured import Secured, secured
from tests.unit.spazio.governing.test_governor import BATCH, MID, PROD, facts, path

NAMES = Names()


async def put(client: Client, *pods: PodFacts) -> None:
    """Do what the watch does with pods' facts."""
    for each in pods:
        await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{token(each.pod)}", codec.encode(each))


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 # files and another service's state, which tell nobody of changes
            await asyncio.sleep(0.02)


class Evictions:
    """An API server that is asked for evictions.

    Attributes:
        asked: Names of pods and what was asked for.
        status: What it answers.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.status = 201

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.match_info["name"], await request.json()))
        return web.json_response({"kind": "Status", "code": self.status, "message": "budget"}, status=self.status)

    @asynccontextmanager
    async def running(self, file: Path) -> AsyncIterator[Path]:
        """Listen on loopback; yields a kubeconfig."""
        application = web.Application()
        application.router.add_post("/api/v1/namespaces/{space}/pods/{name}/eviction", self.answer)
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield kubeconfig(file, f"http://{host}:{port}", "t")
        finally:
            await runner.cleanup()


class Machine:
    """A machine in a folder with a pod of each tier, whose clock moves on at each reading."""

    def __init__(self, folder: Path, name: str = "v2") -> None:
        folder.mkdir()
        self.host = Host(folder, name)
        self.knobs = {uid: Knobs(self.host, path(uid)) for uid in (PROD, MID, BATCH)}
        for uid in self.knobs:
            kept = self.knobs[uid].all()
            self.host.set(path(uid))
            self.host.set(f"{path(uid)}/{container(1)}")
            for file, content in kept.items():
                self.knobs[uid][file] = content
        self.before = {uid: each.all() for uid, each in self.knobs.items()}

    def monotonic(self) -> int:
        self.host.sleep(0.2)
        return self.host.now

    @property
    def limited(self) -> set[str]:
        """UIDs of pods whose control files are not what they were."""
        return {uid for uid, each in self.knobs.items() if each.all() != self.before[uid]}


@asynccontextmanager
async def governing(client: Client, settings: Settings, machine: Machine, **govern: Any) -> AsyncIterator[Health]:
    """Run the governor for the length of a block, and end it as a signal does."""
    host, health = machine.host, Health()
    given = {"interval_seconds": 0.1, "facts_seconds": 0.2, **govern}
    sample = settings.sample.model_copy(update={"node": "n1", "proc": host.proc, "cgroup": host.root})
    settings = settings.model_copy(update={"sample": sample, "govern": type(settings.govern).model_validate(given)})
    census = Census(host.root, host.proc, clock=lambda: host.now / grid.SECOND)
    observer = Observer(census, layout(host), host.proc, descriptors=4096, monotonic=machine.monotonic)
    with Journal(host.root.parent / "govern.json", "b") as journal:
        own = Governor(Limiter(host.root, journal), layout(host), settings.govern)
        context = Context(client, settings, health, Live(settings))  # type: ignore[arg-type] # any client will do
        async with background(Service(context, observer, own).run()):
            yield health


@pytest.mark.slow
async def test_only_pods_that_are_marked_are_limited_and_the_end_restores_them(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "m")
    await put(client, facts(PROD), facts(MID), facts(BATCH))
    async with governing(client, settings, machine) as health:
        await until(lambda: machine.limited == {MID, BATCH})
        assert health.problems == {}
        await put(client, facts(MID, priority=9500))
        await until(lambda: machine.limited == {BATCH})
    assert machine.limited == set()


async def test_a_pod_that_merely_requests_nothing_is_production(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "m")
    await put(client, facts(PROD, qos="BestEffort", priority=0), facts(BATCH))
    async with governing(client, settings, machine):
        await until(lambda: machine.limited)
    assert PROD not in machine.limited


@pytest.mark.slow
async def test_without_facts_nothing_is_governed_and_that_is_reported(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "m")
    await put(client, *(facts(uid).model_copy(update={"node": "another"}) for uid in (MID, BATCH)))
    async with governing(client, settings, machine) as health:
        await until(lambda: "nothing is governed" in health.problems.get("facts", ""))
        assert machine.limited == set()
        await put(client, facts(BATCH))
        await until(lambda: "facts" not in health.problems and machine.limited == {BATCH})


async def test_a_deleted_pod_and_garbage_are_no_facts(client: Client, settings: Settings, tmp_path: Path) -> None:
    await put(client, facts(BATCH), facts(MID))
    directory = Directory(client, NAMES, "n1", timeout_seconds=1, facts_seconds=0)
    await directory.refresh([MID, BATCH, PROD, "a b", "x.y"])
    assert set(directory.lower()) == {MID, BATCH}
    await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{MID}", b"", headers={"KV-Operation": "PURGE"})
    await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{BATCH}", b"{")
    await directory.refresh([MID, BATCH])
    assert (directory.lower(), directory.pods) == ({}, 0)


async def test_pods_are_settled_once_they_are_asked_for_and_none_is_while_the_bus_does_not_answer(
    client: Client, settings: Settings, nats_server: Natsd
) -> None:
    await put(client, facts(BATCH))
    directory = Directory(client, NAMES, "n1", timeout_seconds=0.5, facts_seconds=0)
    await directory.refresh([BATCH, PROD])
    assert set(directory.settled or ()) == {BATCH, PROD}
    nats_server.kill()
    with pytest.raises(errors.REQUEST_FAILED):
        await directory.refresh([BATCH, MID])
    assert (directory.settled, set(directory.lower())) == (None, {BATCH})


@pytest.mark.slow
async def test_a_shortage_of_memory_evicts_the_newest_batch_pod_by_its_uid(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    machine, server = Machine(tmp_path / "m", "v1"), Evictions()
    machine.host.set_node(available=300 * MIB)
    await put(client, facts(MID, created_us=9), facts(BATCH))
    async with server.running(tmp_path / "config") as config:
        settings = settings.model_copy(update={"kube": settings.kube.model_copy(update={"config": config})})
        async with governing(client, settings, machine, evict=True, evict_seconds=5) as health:
            await until(lambda: len(server.asked) == 1)
            server.status = 429
            await until(lambda: len(server.asked) == 2 and "eviction" in health.problems)
            server.status = 201
            await until(lambda: len(server.asked) == 3)
            await until(lambda: "eviction" not in health.problems)
    name, asked = server.asked[0]
    assert (name, asked["kind"], asked["apiVersion"]) == (BATCH, "Eviction", "policy/v1")
    assert asked["deleteOptions"] == {"preconditions": {"uid": BATCH}}
    # The first may end slowly, and a budget may refuse the second: each is tried before one is tried again.
    assert [each for each, _ in server.asked] == [BATCH, MID, BATCH]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["eased", "gone"])
async def test_a_refused_eviction_is_no_problem_any_more_once_none_is_due_or_the_pod_is_gone(
    client: Client, settings: Settings, tmp_path: Path, how: str
) -> None:
    machine, server = Machine(tmp_path / "m", "v1"), Evictions()
    server.status = 429
    machine.host.set_node(available=300 * MIB)
    await put(client, facts(BATCH))
    async with server.running(tmp_path / "config") as config:
        settings = settings.model_copy(update={"kube": settings.kube.model_copy(update={"config": config})})
        async with governing(client, settings, machine, evict=True, evict_seconds=2) as health:
            await until(lambda: "eviction" in health.problems)
            if how == "eased":
                machine.host.set_node(available=3000 * MIB)
            else:
                server.status = 404
            await until(lambda: "eviction" not in health.problems)
    assert {name for name, _ in server.asked} == {BATCH}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as started:
        asyncio.run(_create(started))
        yield started


async def _create(running: Secured) -> None:
    settings = running.settings("process")
    async with connection.connect(settings, "setup") as client:
        await stream.ensure(client, settings)


@pytest.mark.slow
async def test_its_credential_reads_the_facts_of_a_pod_and_lists_none(running: Secured) -> None:
    async with connection.connect(running.settings("watch"), "watch") as watch:
        await put(watch, facts(BATCH))
    async with connection.connect(running.settings("govern"), "govern") as client:
        await _reads(client)


async def _reads(client: Connection) -> None:
    directory = Directory(client, NAMES, "n1", timeout_seconds=1, facts_seconds=60)
    await directory.refresh([BATCH, MID])
    assert set(directory.lower()) == {BATCH}
    assert client.denials.newest() == ""
    assert not client.may_publish(f"$JS.API.CONSUMER.CREATE.KV_{NAMES.pods_bucket}")
