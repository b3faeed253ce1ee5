"""Facts of nodes and pods come from the cluster watch: what a node says of pods reaches neither stream nor extender."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import nats.js.errors
import pytest
from nats.aio.client import Client

from bus import connection, stream
from schemas import codec, role
from schemas.channel import TELEMETRY_KINDS
from schemas.settings import Settings
from schemas.subject import token
from sinks.extender.feed import source
from sinks.extender.feed.follow import Followed
from sinks.extender.state.cluster_state import ClusterState
from spazio.credentials import claims
from tests.e2e.kubernetes.watch.watching import until
from tests.support.extender.placement import node, pod
from tests.support.server.secured import NAMES, Secured, secured


def former(running: Secured, name: str) -> Path:
    """Write the credential that a node had when it might publish facts of itself."""
    grant = role.node(NAMES, name)._replace(publish=tuple(NAMES.node(kind, name) for kind in TELEMETRY_KINDS))
    issuer = claims.key_of((running.folder / "nodes.nk").read_text().strip())
    key = claims.new_key(claims.USER)
    signed = claims.sign(issuer, key.public, f"node {name}", claims.user(grant), int(time.time()))
    file = running.folder / "former.creds"
    file.write_text(claims.credential(signed, key.seed))
    return file


async def test_a_credential_of_a_node_from_before_publishes_no_facts_though_it_says_that_it_may(tmp_path: Path) -> None:
    with secured(tmp_path) as running:
        settings = running.settings("process")
        async with connection.connect(settings, "process") as processors:
            await stream.ensure(processors, settings)
            credential = str(former(running, "n1"))
            thief = await nats.connect(running.url, user_credentials=credential, inbox_prefix="_INBOX_node.n1")
            assert (await thief.jetstream().publish("spazio.samples.n1", b"{}", timeout=5)).seq == 1
            for kind in ("nodefacts", "podfacts"):
                with pytest.raises(nats.js.errors.NoStreamResponseError):
                    await thief.jetstream().publish(f"spazio.{kind}.n1", b"{}", timeout=5)
            await thief.close()
            assert (await stream.describe(processors, NAMES.telemetry)).last == 1


@asynccontextmanager
async def followed(client: Client, settings: Settings) -> AsyncIterator[ClusterState]:
    """Yield what the extender knows of the cluster, once it knows all that is there."""
    state = ClusterState(settings)
    following = Followed(client, settings, state)
    running = asyncio.create_task(following.run())
    try:
        async with asyncio.timeout(60):
            await following.ready.wait()
        yield state
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_the_extender_takes_facts_of_the_stream_from_the_subject_of_their_node_only(
    client: Client, settings: Settings
) -> None:
    publish = client.jetstream().publish
    await publish(f"$KV.{NAMES.nodes_bucket}.{token('n2')}", codec.encode(node("n2")))
    await publish(f"$KV.{NAMES.pods_bucket}.p", codec.encode(pod("p", 2, node="n2", phase="Running")))
    ended = pod("p", 9, node="n2", phase="Running", deleted=True)
    refused = {kind: source.REFUSED.labels(kind)._value.get() for kind in ("nodefacts", "podfacts")}
    async with followed(client, settings) as state:
        await publish(NAMES.node("podfacts", "n1"), codec.encode(ended))
        await publish(NAMES.node("podfacts", "n1"), codec.encode(pod("invented", 9, node="n2", phase="Running")))
        await publish(NAMES.node("nodefacts", "n1"), codec.encode(node("n2", 9, deleted=True)))
        await publish(NAMES.node("nodefacts", "n2"), b"")  # of a bucket's key this is a deletion
        await publish(NAMES.node("podfacts", "n2"), codec.encode(pod("q", 9, node="n2", phase="Running")))

        async def taken() -> bool:
            counted = {kind: source.REFUSED.labels(kind)._value.get() - count for kind, count in refused.items()}
            return counted == {"nodefacts": 2, "podfacts": 2} and "q" in state.pods.bound

        await until(taken, 10, lambda: set(state.pods.bound))
        assert set(state.pods.bound) == {"p", "q"}
        assert state.rows["facts"][state.rows.rows(["n2"])].tolist() == [1.0]
