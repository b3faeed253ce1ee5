"""The cluster watch on a real API server: nodes and their bucket, refusals, lists that expire."""

import asyncio
import urllib.error
import urllib.request
from contextlib import aclosing
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.js.errors import KeyNotFoundError

from kube import api, follow
from schemas import codec
from schemas.messages.facts import NodeFacts
from schemas.sections.measurement import Kube
from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.watch.watching import NAMES, Watch, all_pods, published, until

pytestmark = pytest.mark.slow


async def stored(client: Client, name: str) -> NodeFacts | None:
    """Return what the bucket has of a node."""
    bucket = await client.jetstream().key_value(NAMES.nodes_bucket)
    try:
        return codec.decode(NodeFacts, (await bucket.get(name)).value or b"")
    except KeyNotFoundError:
        return None


async def test_nodes_are_in_the_bucket_and_their_heartbeats_are_no_news(
    plane: ControlPlane, kubectl: Kubectl, watch: Watch, client: Client
) -> None:
    watch.start()
    await kubectl.node(
        "ip-10-0-0-7.eu", labels={"topology.kubernetes.io/zone": "a"}, annotations={"spazio.price": "0.5"}
    )
    await kubectl.node("n2")

    async def condition(name: str, beat: int, status: str = "True") -> None:
        ready = {"type": "Ready", "status": status, "lastHeartbeatTime": f"2040-01-01T00:00:{beat:02}Z"}
        await kubectl.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})

    async def ready() -> bool:
        facts = await stored(client, "ip-10-0-0-7_eu")
        return facts is not None and facts.ready

    await condition("ip-10-0-0-7.eu", 0)
    await until(ready, 20, watch.log.read_text)
    facts = await stored(client, "ip-10-0-0-7_eu")
    assert facts is not None
    assert (facts.price, facts.zone, facts.allocatable["cpu"]) == (0.5, "a", 3.92)
    before = len(await published(client))
    for beat in range(1, 20):
        await condition("ip-10-0-0-7.eu", beat)
    await kubectl.call("DELETE", "/api/v1/nodes/n2")

    async def gone() -> bool:
        return await stored(client, "n2") is None

    await until(gone, 20, watch.log.read_text)
    messages = await published(client)
    assert len(messages) == before + 1
    assert [message.deleted for message in messages if message.node == "n2"][-1:] == [True]

    watch.kill()
    await is_repaired_at_the_next_start(kubectl, watch, client)


async def is_repaired_at_the_next_start(kubectl: Kubectl, watch: Watch, client: Client) -> None:
    """The bucket gets the nodes that it lacks, and a node that went while the watch was away leaves it."""
    await kubectl.call("DELETE", "/api/v1/nodes/ip-10-0-0-7.eu")
    await kubectl.node("n3")
    await client.jetstream().purge_stream(
        f"KV_{NAMES.nodes_bucket}", subject=f"$KV.{NAMES.nodes_bucket}.ip-10-0-0-7_eu"
    )
    watch.start()

    async def is_repaired() -> bool:
        return await stored(client, "ip-10-0-0-7_eu") is None and await stored(client, "n3") is not None

    await until(is_repaired, 20, watch.log.read_text)
    last = [message for message in await published(client) if message.node == "ip-10-0-0-7.eu"][-1]
    assert last.deleted


@pytest.mark.parametrize(("who", "message"), [("stranger", "bind a ClusterRole"), ("nobody", "renew the token")])
async def test_who_may_not_watch_learns_what_is_missing(
    plane: ControlPlane, settings: Settings, tmp_path: Path, client: Client, who: str, message: str
) -> None:
    running = Watch(settings, getattr(plane, who)(), tmp_path)
    running.start()

    async def degraded() -> bool:
        events = running.events if running.log.exists() else []
        return any(event["event"] == "service.degraded" and message in str(event.get("reason")) for event in events)

    try:
        await until(degraded, 20, running.log.read_text)
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(urllib.request.urlopen, running.address() + "/readyz", timeout=5)
        assert refused.value.code == 503
        assert message in refused.value.read().decode()
        assert "-token" not in running.log.read_text().replace("renew the token", "")
    finally:
        running.kill()


@pytest.mark.parametrize("plane", [("--watch-cache=false",)], indirect=True)
async def test_a_list_whose_rest_has_expired_begins_again(plane: ControlPlane, kubectl: Kubectl) -> None:
    await all_pods(lambda name, _: kubectl.pod(name), range(90))
    client, messages = api.Api(Kube(config=plane.kubeconfig(), page=20)), list[str | None]()
    follower = follow.Follower(client, "pods", Kube(page=20), messages.append)
    listings, present = 0, set[str]()
    async with aclosing(follower.news(0)) as news:
        async for each in news:
            if each.what == "listing":
                listings += 1
                present.clear()
            elif each.what == "present":
                present.add(each.object["metadata"]["name"])
                if len(present) == 20 and listings < 3:  # one page is read, and the rest is lost
                    await kubectl.label("p1", listing=str(listings))
                    await asyncio.to_thread(plane.compact)
            else:
                assert each.what == "listed"
                break
    await client.close()
    assert (listings, len(present)) == (3, 90)
    assert messages == []


async def test_a_server_that_is_behind_the_checkpoint_is_listed_again(plane: ControlPlane, kubectl: Kubectl) -> None:
    await kubectl.node("n1")
    reached = int((await kubectl.call("GET", "/api/v1/nodes"))["metadata"]["resourceVersion"])
    client, messages = api.Api(Kube(config=plane.kubeconfig())), list[str | None]()
    heard = []
    async with aclosing(follow.Follower(client, "nodes", Kube(), messages.append).news(reached + 1000)) as news:
        async for each in news:
            heard.append((each.what, each.object.get("metadata", {}).get("name")))
            if each.what == "listed":
                break
    await client.close()
    assert heard == [("listing", None), ("present", "n1"), ("listed", None)]
    assert messages == []
