"""Shadow mode as a process on a real server: its account of a pod comes when the watch says where the pod is."""

from pathlib import Path

import aiohttp
import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.integration.sinks.extender.test_extender import Extender, decisions, post, say
from tests.support.extender.placement import asked, node, pod

NAMES = Names()


@pytest.mark.slow
async def test_the_account_of_a_pod_is_published_once_it_is_bound(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    own = settings.extender.model_copy(update={"mode": "shadow"})
    await say(client, {"a": 9.0, "b": 0.25})
    for name in ("a", "b"):
        await client.jetstream().publish(f"$KV.{NAMES.nodes_bucket}.{token(name)}", codec.encode(node(name)))
    extender = Extender(settings.model_copy(update={"extender": own}), tmp_path / "extender")
    try:
        address = await extender.address()
        body = {"Pod": asked("p"), "Nodes": None, "NodeNames": ["a", "b"]}
        async with aiohttp.ClientSession() as http:
            assert (await post(http, f"{address}/filter", body))["NodeNames"] == ["a", "b"]
            assert await post(http, f"{address}/prioritize", body) == []
        await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.p", codec.encode(pod("p", 2, node="b")))
        (account,) = await decisions(client, 1)
        assert (account.mode, account.node, account.bound) == ("shadow", "a", "b")
        assert account.breaks == ["no room for another pod of its kind"]
    finally:
        extender.kill()
