"""The bucket of pods: what the API server has, for who comes later than the stream remembers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import KeyNotFoundError

from schemas import codec
from schemas.messages.facts import PodFacts
from schemas.settings import Settings
from schemas.subject import Names, name
from tests.e2e.kubernetes.watch.watching import until
from tests.integration.kube.api_server import ApiServer, added, event, lines, page, pod
from tests.integration.kube.test_watch_bus import stored, watching

NAMES = Names()
BUCKET = NAMES.pods_bucket


@pytest.fixture
async def cluster() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as running:
        yield running


async def kept(client: Client) -> dict[str, int]:
    """Return version by UID of what the bucket has."""
    bucket, pods = await client.jetstream().key_value(BUCKET), {}
    for key in await bucket.keys() if (await bucket.status()).values else ():
        try:
            facts = codec.decode(PodFacts, (await bucket.get(key)).value or b"")
        except KeyNotFoundError:  # deleted since
            continue
        assert facts.pod == name(key)
        pods[facts.pod] = facts.version
    return pods


async def until_kept(client: Client, wanted: dict[str, int]) -> None:
    async def there() -> bool:
        return await kept(client) == wanted

    await until(there, 20, lambda: wanted)


async def test_it_has_the_newest_facts_of_every_pod_and_marks_of_the_others_that_do_not_last(
    client: Client, settings: Settings, cluster: ApiServer, tmp_path: Path
) -> None:
    again = pod("c", 54)
    again["metadata"]["uid"] = "u-c.2"
    cluster.script("pods", "list", page(50, pod("a", 41), pod("b", 42), pod("c", 43)))
    changes = (
        added("a", 51, x="y"),
        event("DELETED", pod("b", 52)),
        event("DELETED", pod("c", 53)),
        event("ADDED", again),
    )
    cluster.script("pods", "watch", lines(*changes, then="hold"))
    async with watching(client, settings, cluster, tmp_path):
        await stored(client, 7)
        await until_kept(client, {"u-a": 51, "u-c.2": 54})  # the bucket is written after the stream
    mark = await client.jetstream().get_msg(f"KV_{BUCKET}", subject=f"$KV.{BUCKET}.u-b")
    assert mark.data in (None, b"")
    assert mark.headers is not None
    assert (mark.headers["KV-Operation"], mark.headers["Nats-TTL"]) == ("PURGE", "1h")


async def test_a_static_pod_whose_mirror_comes_again_at_once_ends_each_time(
    client: Client, settings: Settings, cluster: ApiServer, tmp_path: Path
) -> None:
    """Its UID is that of its file, so that both ends are of one UID within the window of duplicates."""

    def mirror(version: int) -> dict[str, Any]:
        thing = pod("proxy", version)
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": True}
        digest = "8a7d6c5b4a39281706f5e4d3c2b1a098"
        thing["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": digest}, "ownerReferences": [owner]}
        return thing

    kinds = ("ADDED", "DELETED", "ADDED", "DELETED")
    changes = [event(kind, mirror(version)) for version, kind in enumerate(kinds, 51)]
    cluster.script("pods", "list", page(50, pod("a", 41)))
    cluster.script("pods", "watch", lines(*changes, then="hold"))
    async with watching(client, settings, cluster, tmp_path):
        facts = await stored(client, 5)
        await until_kept(client, {"u-a": 41})
    expected = [(41, False), (51, False), (52, True), (53, False), (54, True)]
    assert [(each.version, each.deleted) for each in facts] == expected


async def test_what_it_has_lost_is_brought_back_without_asking_the_api_server_for_a_list(
    client: Client, settings: Settings, cluster: ApiServer, tmp_path: Path
) -> None:
    cluster.script("pods", "list", page(50, pod("a", 41), pod("b", 42)))
    async with watching(client, settings, cluster, tmp_path):
        await stored(client, 2)
    await client.jetstream().purge_stream(f"KV_{BUCKET}", subject=f"$KV.{BUCKET}.u-a")
    assert await kept(client) == {"u-b": 42}
    async with watching(client, settings, cluster, tmp_path):
        await until_kept(client, {"u-a": 41, "u-b": 42})
        assert len(await stored(client, 2)) == 2
    assert cluster.lists() == 1


@pytest.mark.slow
async def test_what_it_has_too_much_leaves_it_once_a_list_shows_that_it_is_gone(
    client: Client, settings: Settings, cluster: ApiServer, tmp_path: Path
) -> None:
    cluster.script("pods", "list", page(50, pod("a", 41)), page(60, pod("a", 41)))
    async with watching(client, settings, cluster, tmp_path):
        [facts] = await stored(client, 1)
    stray = codec.encode(facts.model_copy(update={"pod": "u-stray", "name": "stray"}))
    await client.jetstream().publish(f"$KV.{BUCKET}.u-stray", stray)
    await client.jetstream().publish(f"$KV.{BUCKET}.garbage", b"{")

    async def gone() -> bool:
        return not (await client.jetstream().get_msg(f"KV_{BUCKET}", subject=f"$KV.{BUCKET}.u-stray")).data

    async with watching(client, settings, cluster, tmp_path):
        await until(gone, 20, lambda: "u-stray")
        published = await stored(client, 2)
    assert [(each.name, each.deleted) for each in published] == [("a", False), ("stray", True)]
    assert cluster.lists() == 2


@pytest.mark.slow
async def test_what_it_has_ahead_of_the_stream_is_reported_when_it_is_heard_again(
    client: Client, settings: Settings, cluster: ApiServer, tmp_path: Path
) -> None:
    cluster.script("pods", "list", page(50, pod("a", 41)))
    async with watching(client, settings, cluster, tmp_path):
        [facts] = await stored(client, 1)
        await asyncio.sleep(0.5)  # the account is saved
    # As if the watch had been killed between the bucket and the stream.
    ahead = codec.encode(facts.model_copy(update={"pod": "u-b", "name": "b", "version": 51}))
    await client.jetstream().publish(f"$KV.{BUCKET}.u-b", ahead)
    cluster.script("pods", "watch", lines(added("b", 51), then="hold"))
    async with watching(client, settings, cluster, tmp_path):
        published = await stored(client, 2)
        assert await kept(client) == {"u-a": 41, "u-b": 51}
    assert [(each.name, each.version, each.deleted) for each in published] == [("a", 41, False), ("b", 51, False)]
    assert cluster.lists() == 1
