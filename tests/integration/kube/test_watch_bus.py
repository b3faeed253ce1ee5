"""What the cluster watch publishes on a real server, also while that is away or has lost some of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from bus import errors, stream
from bus.connection import Connection
from bus.health import Health
from bus.publishing import storage_check
from bus.reading.reader import Reader
from bus.reading.setback import SET_BACK
from bus.stream import Stored
from kube import follow
from schemas import codec
from schemas.live import Live
from schemas.messages.facts import PodFacts
from schemas.sections.measurement import Kube
from schemas.settings import Settings
from schemas.subject import Names, token
from spazio.command import watch
from spazio.service.service import Context
from tests.conftest import NatsServer
from tests.integration.bus.dying import quick
from tests.integration.bus.test_wiped_server import made_again
from tests.integration.kube.api_server import ApiServer, added, event, lines, page, pod, refusal
from tests.support.background import background
from tests.support.server.power import Power, publish

NAMES = Names()


@asynccontextmanager
async def watching(client: Any, settings: Settings, server: ApiServer, folder: Path) -> AsyncIterator[Health]:
    kube = Kube(config=server.kubeconfig(folder / "kubeconfig"), save_seconds=0.2)
    health = Health()
    settings = settings.model_copy(update={"kube": kube})
    context = Context(client, settings, health, Live(settings))
    async with background(watch.keep(context, server.url)):
        yield health


async def stored(client: Client, count: int) -> list[PodFacts]:
    """Return the facts of pods in the stream, once there are so many and no more come."""
    facts: list[PodFacts] = []
    async with asyncio.timeout(60), Reader(client, NAMES.telemetry, [NAMES.part("*", "podfacts")]) as reader:
        while len(facts) < count:
            facts += [codec.decode_from(PodFacts, each.data, each.subject) for each in await reader.read()]
        assert await reader.read(timeout_seconds=0.3) == []
    return facts


def one_more(go: asyncio.Event) -> Any:
    """Return an answer of the API server that adds a pod once it may."""

    async def answer(request: Any) -> Any:
        await go.wait()
        return await lines(added("b", 51), then="hold")(request)

    return answer


async def one_more_than_synced(client: Client, power: Power, go: asyncio.Event) -> None:
    """Copy what the server has of one pod, and its checkpoint; then let another be added."""
    await stored(client, 1)
    await asyncio.sleep(0.5)  # until the checkpoint is written
    await power.synced()
    go.set()
    await stored(client, 2)


@pytest.mark.slow
async def test_nothing_is_lost_when_nats_is_away_and_reading_stops_while_too_much_waits(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(watch, "_MOST_WAITING", 10)
    begun, events = asyncio.Event(), [added(f"p{number}", 51 + number, pad="x" * 4000) for number in range(1000)]

    async def many(request: Any) -> Any:
        await asyncio.to_thread(nats_server.kill)
        begun.set()
        return await lines(*events, then="hold")(request)

    server.script("pods", "list", page(50))
    server.script("pods", "watch", many)
    counted = follow.EVENTS.labels("pods", "ADDED")._value
    before = counted.get()
    async with watching(client, settings, server, tmp_path):
        async with asyncio.timeout(60):
            await begun.wait()
        await asyncio.sleep(0.5)
        assert counted.get() - before <= 30
        await asyncio.to_thread(nats_server.start)
        facts = await stored(client, 1000)
    assert [each.version for each in facts] == list(range(51, 1051))


@pytest.mark.slow
async def test_a_watch_that_begins_again_says_only_what_is_new(
    client: Client, settings: Settings, server: ApiServer, tmp_path: Path
) -> None:
    server.script("pods", "list", page(50, pod("a", 41), pod("b", 42), pod("c", 43)))
    server.script("pods", "watch", lines(added("a", 51, x="y"), then="hold"))
    async with watching(client, settings, server, tmp_path):
        await stored(client, 4)
    # It resumes behind 51; what it heard before is heard again.
    server.script("pods", "watch", lines(event("DELETED", pod("b", 52)), added("a", 53, x="y"), then="hold"))
    async with watching(client, settings, server, tmp_path):
        facts = await stored(client, 5)
    assert server.versions()[-1] == "51"
    assert server.lists() == 1
    assert [(each.name, each.version, each.deleted) for each in facts[-2:]] == [("a", 51, False), ("b", 52, True)]
    # Another cluster: its versions mean nothing, and what it lacks is gone.
    async with ApiServer().running() as other:
        other.script("pods", "list", page(9, pod("a", 3)))
        async with watching(client, settings, other, tmp_path):
            facts = await stored(client, 7)
    assert {(each.name, each.deleted) for each in facts[-2:]} == {("a", False), ("c", True)}


@pytest.mark.slow
async def test_a_watch_that_begins_while_nats_is_away_waits_for_it(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path
) -> None:
    server.script("pods", "list", page(50, pod("a", 41)))
    server.script("pods", "watch", lines(then="hold"))
    async with watching(client, settings, server, tmp_path):
        await stored(client, 1)
    server.script("pods", "watch", lines(added("b", 51), then="hold"))
    await asyncio.to_thread(nats_server.kill)
    async with watching(client, settings, server, tmp_path) as health:
        async with asyncio.timeout(60):
            while "earlier" not in str(health.problems):  # noqa: ASYNC110 # seen from outside
                await asyncio.sleep(0.1)
        await asyncio.to_thread(nats_server.start)
        facts = await stored(client, 2)
        assert not health.problems
    assert [each.name for each in facts] == ["a", "b"]
    assert server.lists() == 1


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 30])
async def test_facts_that_a_server_lost_with_its_power_are_published_again(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path, others: int
) -> None:
    """`others`: messages of other producers that the server stores before the watch asks what is left."""
    power, go = Power(nats_server, tmp_path / "copy"), asyncio.Event()

    server.script("pods", "list", page(50, pod("a", 41)))
    server.script("pods", "watch", one_more(go), lines(added("b", 51), then="hold"))
    counted = SET_BACK.labels(NAMES.telemetry)._value
    before = counted.get()
    async with watching(client, settings, server, tmp_path):
        await one_more_than_synced(client, power, go)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(power.lose)
        for number in range(others):
            await publish(client, NAMES.node("samples", f"n{number}"), b"{}")
        facts = await stored(client, 2)
        copy = await client.jetstream().key_value(NAMES.pods_bucket)
        assert codec.decode(PodFacts, (await copy.get(token(facts[1].pod))).value or b"").name == "b"
    assert [each.name for each in facts] == ["a", "b"]
    assert counted.get() == before + 1
    assert server.versions() == ["50", "50"]
    assert server.lists() == 1


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 30])
async def test_a_watch_that_begins_again_publishes_facts_that_the_stream_alone_has_lost(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path, others: int
) -> None:
    """Its checkpoint has them: the stream was not synced when that was written."""
    power, go = Power(nats_server, tmp_path / "copy", NAMES.telemetry), asyncio.Event()

    server.script("pods", "list", page(50, pod("a", 41)), page(51, pod("a", 41), pod("b", 51)))
    server.script("pods", "watch", one_more(go), lines(then="hold"))
    async with watching(client, settings, server, tmp_path):
        await one_more_than_synced(client, power, go)
    await asyncio.to_thread(power.lose)
    for number in range(others):
        await publish(client, NAMES.node("samples", f"n{number}"), b"{}")
    async with watching(client, settings, server, tmp_path):
        facts = await stored(client, 2)
    assert [each.name for each in facts] == ["a", "b"]


@pytest.mark.slow
async def test_facts_that_a_bucket_alone_has_lost_are_written_to_it_again(
    client: Client, settings: Settings, nats_server: NatsServer, server: ApiServer, tmp_path: Path
) -> None:
    power, go = Power(nats_server, tmp_path / "copy", f"KV_{NAMES.pods_bucket}"), asyncio.Event()

    server.script("pods", "list", page(50, pod("a", 41)))
    server.script("pods", "watch", one_more(go), lines(then="hold"))
    async with watching(client, settings, server, tmp_path), asyncio.timeout(20):
        await stored(client, 1)
        await power.synced()
        go.set()
        lost = token((await stored(client, 2))[1].pod)
        await asyncio.to_thread(power.lose)
        subject, copy = f"$KV.{NAMES.pods_bucket}.{lost}", Stored(b"", 0)
        while not copy.sequence:
            with contextlib.suppress(*errors.REQUEST_FAILED):
                copy = await stream.newest(client, f"KV_{NAMES.pods_bucket}", subject, 1)
            await asyncio.sleep(0.1)
        assert codec.decode(PodFacts, copy.payload).name == "b"
        assert len(await stored(client, 2)) == 2


@pytest.mark.slow
async def test_facts_of_streams_that_somebody_deletes_are_published_again(
    client: Connection, settings: Settings, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stream, storage_check):
        monkeypatch.setattr(module, "_LOOK_SECONDS", 0.5)
    bucket = f"KV_{NAMES.pods_bucket}"
    server.script("pods", "list", *[page(50, pod("a", 41), pod("b", 42))] * 3)
    server.script("pods", "watch", lines(then="hold"))
    keeping = stream.keep(client, quick(settings), Health(), ensured=client.stats["reconnects"])
    async with background(keeping), watching(client, settings, server, tmp_path):
        await stored(client, 2)
        await asyncio.sleep(0.5)  # until the checkpoint is written
        for name in (bucket, NAMES.telemetry):
            await client.jetstream().delete_stream(name)
        await made_again(client, settings)
        assert {each.name for each in await stored(client, 2)} == {"a", "b"}
        assert (await client.jetstream().stream_info(bucket)).state.messages == 2


async def test_trouble_with_the_api_server_is_reported_as_health(
    client: Client, settings: Settings, server: ApiServer, tmp_path: Path
) -> None:
    server.script("pods", "list", refusal(403, 'pods is forbidden: User "x" cannot list resource "pods"'))
    problems: list[dict[str, str]] = []
    async with watching(client, settings, server, tmp_path) as health, asyncio.timeout(60):
        while not problems or problems[-1]:
            if health.problems or problems:
                problems.append(dict(health.problems))
            await asyncio.sleep(0.01)
    assert "verbs list and watch" in problems[0]["kubernetes pods"]
