"""The extender as processes on a real server: what it knows after a start, two at once, decisions, NATS away."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nats.aio.client import Client

from bus.reading.reader import Reader
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.placement import Decision, Reservations, Shortage
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.conftest import NatsServer
from tests.support.extender.placement import asked, node, pod, report
from tests.support.server.program import SPAZIO, Program

NAMES = Names()
NODES = [f"n{number}.example" for number in range(6)]


class Extender(Program):
    """One process."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        data = settings.data.model_copy(update={"dir": folder})
        own = settings.extender.model_copy(update={"port": 0})
        http = settings.http.model_copy(update={"port": 0})
        made = settings.model_copy(update={"data": data, "extender": own, "http": http})
        folder.mkdir(parents=True)
        environ = {**os.environ, **all_settings.environment(made)}
        super().__init__((*SPAZIO, "sink", "extender"), folder / "extender.log", environ)
        self._note = folder / "run" / "scheduler.json"
        self.start()

    async def address(self) -> str:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.alive, self.log.read_text()
            with contextlib.suppress(OSError, ValueError):
                noted = json.loads(self._note.read_text())
                if noted["pid"] == self.process.pid:
                    return str(noted["http"])
            await asyncio.sleep(0.05)
        raise AssertionError(self.log.read_text())


@pytest.fixture
def two(settings: Settings, client: Client, tmp_path: Path) -> Iterator[list[Extender]]:
    running = [Extender(settings, tmp_path / f"extender-{number}") for number in range(2)]
    yield running
    for each in running:
        each.kill()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def say(client: Client, rooms: dict[str, float]) -> None:
    """Write the scheduler cache as the cache sink does."""
    now_us = time.time_ns() // 1000
    for name, room in rooms.items():
        row = codec.encode(report(name, now_us, room))
        await client.jetstream().publish(f"$KV.{NAMES.availability_bucket}.{token(name)}", row)


async def place(http: aiohttp.ClientSession, address: str, uid: str, names: Sequence[str] = NODES) -> str | None:
    """Ask as kube-scheduler does; returns where it would bind the pod."""
    raw = asked(uid)
    answer = await post(http, f"{address}/filter", {"Pod": raw, "Nodes": None, "NodeNames": names})
    assert not answer["Error"], answer
    passing: list[str] = answer["NodeNames"] or []
    if len(passing) < 2:
        return next(iter(passing), None)
    scores = await post(http, f"{address}/prioritize", {"Pod": raw, "Nodes": None, "NodeNames": passing})
    by_node = {each["Host"]: each["Score"] for each in scores}
    return max(passing, key=lambda name: int(by_node.get(name, 0)))  # a node that is not scored has 0


async def post(http: aiohttp.ClientSession, url: str, content: Any) -> Any:
    async with http.post(url, json=content) as response:
        assert response.status == 200, await response.text()
        return await response.json()


async def decisions(client: Client, count: int) -> list[Decision]:
    result: list[Decision] = []
    async with Reader(client, NAMES.events, [NAMES.of("decision", ">")]) as reader:
        while len(result) < count:
            messages = await reader.read(timeout_seconds=5)
            assert messages, f"{len(result)} of {count} decisions"
            result += [codec.decode(Decision, message.data) for message in messages]
    return result


@pytest.mark.slow
async def test_two_at_once_give_each_place_once_and_a_restart_forgets_none(
    client: Client, two: list[Extender], http: aiohttp.ClientSession
) -> None:
    await say(client, dict.fromkeys(NODES, 5.5))
    addresses = [await each.address() for each in two]
    placed = await asyncio.gather(*(place(http, addresses[number % 2], f"p{number}") for number in range(20)))
    await decisions(client, 20)  # published behind the answers, so a kill may cost the last ones
    two[0].kill()
    two[0].start()
    addresses[0] = await two[0].address()
    placed += await asyncio.gather(*(place(http, addresses[number % 2], f"p{number}") for number in range(20, 40)))
    counts = {name: placed.count(name) for name in NODES}
    assert counts == dict.fromkeys(NODES, 5)
    assert placed.count(None) == 10
    messages = await decisions(client, 40)
    assert sum(decision.outcome == "rejected" for decision in messages) == 10
    assert all(decision.guaranteed for decision in messages if decision.outcome == "placed")
    held = 0
    for name in NODES:
        stored = await client.jetstream().get_msg(
            f"KV_{NAMES.reservations_bucket}", subject=f"$KV.{NAMES.reservations_bucket}.{token(name)}"
        )
        held += len(codec.decode(Reservations, stored.data or b"").pods)
    assert held == 30


@pytest.mark.slow
async def test_a_pod_whose_name_no_subject_can_hold_harms_nobody(
    client: Client, two: list[Extender], http: aiohttp.ClientSession
) -> None:
    await say(client, {NODES[0]: 5.5})
    address = await two[0].address()
    raw = asked("odd", namespace="\u65e5" * 253)
    raw["metadata"]["name"] = "\u65e5" * 253
    await post(http, f"{address}/filter", {"Pod": raw, "Nodes": None, "NodeNames": []})
    assert await place(http, address, "p", NODES[:1]) == NODES[0]
    (messages,) = await decisions(client, 1)
    assert messages.name == "p"
    assert "nats.error_reported" not in two[0].log.read_text()


@pytest.mark.slow
async def test_what_others_say_is_followed_without_the_client_s_own_watch(
    client: Client, two: list[Extender], http: aiohttp.ClientSession
) -> None:
    address = await two[0].address()
    js = client.jetstream()
    await say(client, {"a": 2.5})
    await js.publish(NAMES.node("nodefacts", "a"), codec.encode(node("a", created_us=1)))
    await eventually(lambda: place(http, address, "first", ["unknown", "a"]), "a")
    assert await place(http, address, "p", ["a"]) == "a"
    assert await place(http, address, "q", ["a"]) is None
    # The pod lands elsewhere: its place is free, and the other node counts it.
    await js.publish(NAMES.node("podfacts", "b"), codec.encode(pod("p", 2, node="b")))
    await eventually(lambda: place(http, address, "q", ["a"]), "a")
    # A node that the bucket lacks is unknown: it passes, last, once the watch has reported it.
    await say(client, {"a": 0.0})
    await eventually(lambda: place(http, address, "r", ["a", "c"]), None)
    await js.publish(NAMES.node("nodefacts", "c"), codec.encode(node("c", created_us=1)))
    await eventually(lambda: place(http, address, "r", ["a", "c"]), "c")


@pytest.mark.slow
async def test_what_lacks_room_is_published_while_it_lacks_and_its_end_too(
    client: Client, two: list[Extender], http: aiohttp.ClientSession
) -> None:
    address = await two[0].address()
    await client.jetstream().publish(NAMES.node("nodefacts", "a.b"), codec.encode(node("a.b", created_us=1)))
    await say(client, {"a.b": 0.5})
    await eventually(lambda: place(http, address, "p", ["a.b"]), None)
    async with Reader(client, NAMES.estimates, [NAMES.of("shortage", "*")]) as reader:

        async def newest() -> tuple[int, list[str]]:
            messages = [codec.decode(Shortage, each.data) for each in await reader.read(timeout_seconds=5)]
            assert messages
            assert len({each.replica for each in messages}) == 1  # the other has refused nothing, and says nothing
            return messages[-1].pods, messages[-1].full

        await eventually(newest, (1, ["a.b"]))
        await client.jetstream().publish(NAMES.node("podfacts", "-"), codec.encode(pod("p", 2, deleted=True)))
        await eventually(newest, (0, []))
        assert await reader.read(timeout_seconds=5) == []


@pytest.mark.slow
async def test_while_nats_is_away_pods_wait_and_afterwards_they_are_placed(
    client: Client, two: list[Extender], http: aiohttp.ClientSession, nats_server: NatsServer
) -> None:
    address = await two[0].address()
    await say(client, {"a": 9.0})
    await eventually(lambda: place(http, address, "p", ["unknown", "a"]), "a")
    nats_server.kill()
    question = {"Pod": asked("q"), "Nodes": None, "NodeNames": ["a"]}
    assert "NATS does not answer" in (await post(http, f"{address}/filter", question))["Error"]
    nats_server.start()
    await say_again(client)
    deadline = time.monotonic() + 60
    while (await post(http, f"{address}/filter", question))["Error"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def say_again(client: Client) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            await say(client, {"a": 9.0})
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the server does not come back")


async def eventually(ask: Any, wanted: object) -> None:
    deadline = time.monotonic() + 60
    while (result := await ask()) != wanted:
        assert time.monotonic() < deadline, result
        await asyncio.sleep(0.05)
