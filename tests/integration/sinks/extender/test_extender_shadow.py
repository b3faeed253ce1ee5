"""Shadow mode as a process on a real server: its account of a pod comes when the watch says where the pod is."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.messages.placement import Promises, Spare, Trust
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.integration.sinks.extender.test_extender import Extender, decisions, post, say
from tests.support.extender.placement import asked, node, pod

NAMES = Names()
TWO = {"a": 9.0, "b": 0.25}
BODY = {"Pod": asked("p"), "Nodes": None, "NodeNames": ["a", "b"]}


@asynccontextmanager
async def extending(
    client: Client, settings: Settings, folder: Path, rooms: Mapping[str, float], **changed: Any
) -> AsyncIterator[str]:
    """Run an extender with changed settings beside nodes with such rooms; yields its address."""
    await say(client, dict(rooms))
    for name in rooms:
        await client.jetstream().publish(
            f"$KV.{NAMES.nodes_bucket}.{token(name)}", codec.encode(node(name, created_us=1))
        )
    own = settings.extender.model_copy(update=changed)
    extender = Extender(settings.model_copy(update={"extender": own}), folder / "extender")
    try:
        yield await extender.address()
    finally:
        extender.kill()


@pytest.mark.slow
async def test_the_account_of_a_pod_is_published_once_it_is_bound(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    async with extending(client, settings, tmp_path, TWO, mode="shadow") as address, aiohttp.ClientSession() as http:
        assert (await post(http, f"{address}/filter", BODY))["NodeNames"] == ["a", "b"]
        assert await post(http, f"{address}/prioritize", BODY) == []
        await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.p", codec.encode(pod("p", 2, node="b")))
        (account,) = await decisions(client, 1)
        assert (account.mode, account.node, account.bound) == ("shadow", "a", "b")
        assert account.breaks == ["no room for another pod of its kind"]


@pytest.mark.slow
async def test_pods_of_a_namespace_are_placed_while_the_promises_of_all_replicas_hold(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    running = extending(client, settings, tmp_path, TWO, mode="shadow", promote=True)
    async with running as address, aiohttp.ClientSession() as http:
        for seen, broken, passing in ((200, 2, ["a"]), (300, 100, ["a", "b"])):
            await client.jetstream().publish(NAMES.of("trust", "other"), codec.encode(trust(seen, broken)))
            await until_passing(passing, http, address)


async def until_passing(nodes: list[str], http: aiohttp.ClientSession, address: str) -> None:
    async with asyncio.timeout(10):
        while (await post(http, f"{address}/filter", BODY))["NodeNames"] != nodes:
            pass


def trust(seen: int, broken: int) -> Trust:
    """Return what another replica has seen: so many promises, and how many were broken."""
    none = Spare(nodes=0.0, cores=0.0)
    promises = Promises(
        namespace="default", settled=0, broken=0, loose=0, evidence=seen, against=broken, promoted=False
    )
    return Trust(
        replica="other",
        at_us=time.time_ns() // 1000,
        mode="shadow",
        risk=0.1,
        nodes=0,
        cores=0.0,
        measured=none,
        requested=none,
        promises=[promises],
    )


@pytest.mark.slow
async def test_what_room_and_requests_leave_is_published(client: Client, settings: Settings, tmp_path: Path) -> None:
    """Room for 9 pods of a tenth of the node each, which has none: 0.9 of it are left by room, and all by requests."""
    async with extending(client, settings, tmp_path, {"a": 9.0}):
        async with asyncio.timeout(20):
            last = await newest(client)
        assert (last.nodes, last.cores, last.mode, last.promises) == (1, 4.0, "argmax", [])
        assert (last.measured.nodes, last.requested.nodes) == (0.9, 1.0)


async def newest(client: Client) -> Trust:
    messages = await client.jetstream().subscribe(NAMES.of("trust", "*"), stream=NAMES.estimates)
    return codec.decode(Trust, (await messages.next_msg(timeout=20)).data)
