"""A region at a leaf server: what its edge agents say arrives at the hub once, whatever happens in between."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from bus import connection, server, stream
from bus.reading.reader import Reader
from processors.rows import snapshot
from schemas import codec
from schemas.channel import AGENT_KINDS, CHANNELS
from schemas.messages.telemetry import EdgeBlock
from schemas.subject import Names, token
from tests.e2e.project.regions import NODE, Region, running
from tests.support.server.natsd import Natsd
from tests.support.server.raw import reached

NAMES = Names()


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    made = Region(tmp_path)
    yield made
    made.end()


async def until(probe: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        while not (result := await probe()):  # noqa: ASYNC110 # other processes make it
            await asyncio.sleep(0.1)
    return result


async def cached(client: Client) -> dict[str, Any] | None:
    """Return the node's row of the scheduler cache."""
    try:
        bucket = await client.jetstream(timeout=2).key_value(NAMES.availability_bucket)
        row: dict[str, Any] = json.loads((await bucket.get(token(NODE))).value or b"{}")
    except (nats.errors.Error, TimeoutError):
        return None
    return row


async def blocks(client: Client) -> list[EdgeBlock]:
    """Return every edge block that is stored."""
    result: list[EdgeBlock] = []
    async with Reader(client, NAMES.telemetry, [NAMES.part("*", "edge")]) as reader:
        while part := await reader.read(timeout_seconds=1):
            result += [codec.decode_from(EdgeBlock, each.data, each.subject) for each in part]
    return result


async def usage(client: Client) -> list[range]:
    """Return the seconds of every stored block of pod usage: its own, on a busy machine after others."""
    stored: list[dict[str, Any]] = []
    async with Reader(client, NAMES.telemetry, [NAMES.part("*", "pods")]) as reader:
        while part := await reader.read(timeout_seconds=1):
            stored += [json.loads(each.data) for each in part]
    return [range(block["seq"] - round(block["span_us"] / 1e6) + 1, block["seq"] + 1) for block in stored]


async def modelled(client: Client) -> bool:
    """Tell whether there is a global model."""
    try:
        await client.jetstream(timeout=2).get_msg(NAMES.telemetry, subject=NAMES.model)
    except NotFoundError:
        return False
    return True


async def newer(client: Client, seq: int) -> int | None:
    row = await cached(client)
    return int(row["seq"]) if row and row["seq"] > seq else None


@pytest.mark.slow
async def test_a_region_behind_a_leaf_is_estimated_and_loses_and_doubles_nothing_when_hub_or_link_die(
    region: Region, tmp_path: Path
) -> None:
    centre, far = region.central(tmp_path / "centre", "admin"), region.far(tmp_path / "far")
    async with connection.connect(centre, "test") as client:
        await stream.ensure(client, centre)
        with ExitStack() as stack:
            for arguments in (("process",), ("sink", "cache")):
                stack.enter_context(running(region.central(tmp_path / "centre", arguments[-1]), *arguments))
            edge = stack.enter_context(running(far, "edge"))
            seq = await until(lambda: newer(client, -1), 30)
            row = await cached(client)
            assert row is not None
            assert row["upper"] >= row["available"] >= 0  # a machine that is busy with other tests has no room
            assert set(row["usage"]) >= {"cpu", "memory"}
            await until(lambda: modelled(client), 30)  # the edge hears it, and has it when it comes back

            region.link.cut()
            before = (await blocks(client))[-1].seq
            await asyncio.sleep(6)
            assert (await blocks(client))[-1].seq == before  # nothing comes through
            region.link.restore()
            seq = await until(lambda: newer(client, before + 6), 30)

            region.hub.kill()
            await asyncio.sleep(4)
            await asyncio.to_thread(region.hub.start)
            seq = await until(lambda: newer(client, seq + 5), 40)

            edge.send_signal(signal.SIGKILL)
            edge.wait()
            killed = (await blocks(client))[-1].seq
            stack.enter_context(running(far, "edge"))
            await until(lambda: newer(client, killed + 3), 30)
            row = await cached(client)
        stored, read = [block.seq for block in await blocks(client)], await usage(client)
    first, last = stored[0], stored[-1]
    assert stored == sorted(set(stored))  # each once, in order
    missing = set(range(first, last + 1)) - set(stored)
    assert missing <= set(range(killed + 1, killed + 10))  # but the time that it was down
    assert len(missing) <= 8
    own, spanned = [seconds[-1] for seconds in read], {second for seconds in read for second in seconds}
    assert own == sorted(set(own))
    assert set(range(own[0], own[-1] + 1)) - spanned <= set(range(killed - 1, killed + 10))
    assert row is not None
    assert "doubled" not in (row.get("blocks") or {}) or row["blocks"]["doubled"] == 0
    (file,) = (tmp_path / "far" / "edge").glob("*.state")
    assert snapshot.unpack(file.read_bytes())[0]["world"]["scope"] == "global"  # and the global model comes back
    assert "edge.state_loaded" in (tmp_path / "far.edge.log").read_text()


CONTRACT = tuple(row.filter(NAMES) for row in CHANNELS if row.kind not in AGENT_KINDS)
API = (
    *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"),
    *(f"$JS.API.STREAM.{verb}.SPAZIO_TELEMETRY" for verb in ("INFO", "CREATE", "UPDATE", "DELETE", "PURGE", "MSG.GET")),
    *(f"$JS.API.CONSUMER.{verb}.SPAZIO_TELEMETRY" for verb in ("CREATE", "NAMES", "LIST")),
    *(f"$JS.API.CONSUMER.{verb}.SPAZIO_TELEMETRY.c" for verb in ("INFO", "DELETE", "MSG.NEXT", "DURABLE.CREATE")),
    *("$JS.API.DIRECT.GET.SPAZIO_TELEMETRY", "$KV.SPAZIO_AVAILABILITY.n", "$O.SPAZIO_CHECKPOINTS.M.n"),
    *("$JS.ACK.SPAZIO_TELEMETRY.c.1.1.1.1.0", "$SYS.REQ.SERVER.PING", "_INBOX_admin.a", "_INBOX.a", "anything"),
)


async def stored(agent: Client, subject: str) -> bool:
    """Publish to a subject; tell whether the hub has stored it."""
    try:
        await agent.jetstream(timeout=1).publish(subject, b"{}")
    except (nats.errors.Error, TimeoutError):
        return False
    return True


@pytest.mark.slow
async def test_a_node_at_a_leaf_publishes_its_own_telemetry_and_nothing_else(region: Region, tmp_path: Path) -> None:
    centre = region.central(tmp_path / "centre", "admin")
    async with connection.connect(centre, "test") as client, connection.connect(region.far(tmp_path), "far") as agent:
        await stream.ensure(client, centre)
        await until(lambda: stored(agent, NAMES.node("edge", NODE)), 10)
        for kind in ("samples", "containers", "pods"):
            assert await stored(agent, NAMES.node(kind, NODE)), kind
            assert not await stored(agent, NAMES.node(kind, "other")), kind
        for kind in ("nodefacts", "podfacts"):
            assert not await stored(agent, NAMES.node(kind, NODE)), kind
        async with connection.connect(region.far(tmp_path, "other"), "other") as other:
            assert await stored(other, NAMES.node("samples", "other"))


@pytest.fixture
def intruder(region: Region, tmp_path: Path) -> Iterator[Natsd]:
    """A server of somebody who has the region's credential and asks nobody who they are."""
    port = server.free_port(0)
    config = tmp_path / "intruder" / "server.conf"
    config.parent.mkdir()
    remote = "url: $SPAZIO_HUB_URL, credentials: $SPAZIO_REGION_CREDENTIALS, tls { ca_file: $SPAZIO_HUB_CA }"
    config.write_text(f'listen: 127.0.0.1:{port}\nleafnodes {{ reconnect: "1s", remotes: [{{ {remote} }}] }}\n')
    made = Natsd(config, port, region.remote)
    made.start()
    yield made
    made.kill()


@pytest.mark.slow
async def test_who_has_a_regions_credential_publishes_telemetry_and_neither_reads_nor_disturbs(
    region: Region, intruder: Natsd, tmp_path: Path
) -> None:
    centre = region.central(tmp_path / "centre", "admin")
    async with connection.connect(centre, "test") as client:
        await stream.ensure(client, centre)
        agent = await nats.connect(intruder.url, inbox_prefix=b"_INBOX_region")
        at_hub, at_leaf = Heard(), Heard()
        await client.subscribe(">", cb=at_hub.hear)
        await agent.subscribe(">", cb=at_leaf.hear)
        await until(lambda: stored(agent, NAMES.node("edge", NODE)), 10)
        consumers = await client.jetstream().consumers_info(NAMES.telemetry)
        for subject in (*CONTRACT, *API):
            await agent.publish(subject.replace("*", "n").replace(">", "n"), b"{}", reply="spazio.samples.planted")
        # A push consumer whose deliveries would be telemetry of somebody, as the region could once make it.
        push = {
            "stream_name": NAMES.telemetry,
            "config": {"deliver_subject": "spazio.edge.planted", "ack_policy": "none"},
        }
        with pytest.raises((nats.errors.Error, TimeoutError)):
            await agent.request(f"$JS.API.CONSUMER.CREATE.{NAMES.telemetry}", json.dumps(push).encode(), timeout=1)
        await reached(agent)
        assert not await stored(agent, NAMES.node("edge", "sim-1"))  # a node of another region
        await until(lambda: stored(agent, NAMES.node("edge", "other")), 5)
        for subject in (NAMES.node("availability", "n"), "$KV.SPAZIO_AVAILABILITY.n", "_INBOX_admin.a", "anything"):
            await client.publish(subject, b"of the hub")
        await client.publish(NAMES.model, b"of the hub")
        await client.flush()
        await until(lambda: at_leaf.heard(NAMES.model, b"of the hub"), 5)  # published last
        assert await client.jetstream().consumers_info(NAMES.telemetry) == consumers
        published = {subject for subject, data in at_hub.messages if data == b"{}"}
        assert {subject for subject in published if not subject.startswith("spazio.edge.")} == set()
        assert [subject for subject, data in at_leaf.messages if data == b"of the hub"] == [NAMES.model]
        assert not await at_hub.heard("spazio.samples.planted")
        await agent.close()


class Heard:
    """Messages that a subscription has delivered."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    async def hear(self, message: Msg) -> None:
        self.messages.append((message.subject, message.data))

    async def heard(self, subject: str, data: bytes | None = None) -> bool:
        """Tell whether a message came on a subject; with `data`, whether that did."""
        return any(result == subject and data in (None, content) for result, content in self.messages)
