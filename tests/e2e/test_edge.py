"""A region at a leaf server: what its edge agents say arrives at the hub once, whatever happens in between."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import connection, stream
from bus.reading.reader import Reader
from processors.rows import snapshot
from schemas import codec
from schemas.messages.telemetry import EdgeBlock
from schemas.subject import Names, token
from tests.e2e.regions import Region, running

NAMES, NODE = Names(), "far.away"


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    made = Region(tmp_path)
    yield made
    made.end()


async def until(probe: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await probe()):  # noqa: ASYNC110 # other processes make it
            await asyncio.sleep(0.1)
    return found


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
    found: list[EdgeBlock] = []
    async with Reader(client, NAMES.telemetry, [NAMES.part("*", "edge")]) as reader:
        while part := await reader.read(timeout_seconds=1):
            found += [codec.decode_from(EdgeBlock, one.data, one.subject) for one in part]
    return found


async def usage(client: Client) -> list[int]:
    """Return the seconds of every block of pod usage that is stored."""
    found: list[int] = []
    async with Reader(client, NAMES.telemetry, [NAMES.part("*", "pods")]) as reader:
        while part := await reader.read(timeout_seconds=1):
            found += [json.loads(one.data)["seq"] for one in part]
    return found


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
    centre = region.settings(tmp_path / "centre", region.centre_url)
    far = region.settings(tmp_path / "far", region.agent_url)
    async with connection.connect(centre, "test") as client:
        await stream.ensure(client, centre)
        with ExitStack() as stack:
            for arguments in (("process",), ("sink", "cache")):
                stack.enter_context(running(centre, *arguments))
            edge = stack.enter_context(running(far, "edge"))
            seq = await until(lambda: newer(client, -1), 30)
            row = await cached(client)
            assert row is not None
            assert row["available"] > 0
            assert set(row["usage"]) >= {"cpu", "memory"}
            await until(lambda: modelled(client), 30)  # the edge hears it, and has it when it comes back

            region.link.cut()
            before = (await blocks(client))[-1].seq
            await asyncio.sleep(6)
            assert (await blocks(client))[-1].seq == before  # nothing comes through
            region.link.mend()
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
    assert read == sorted(set(read))
    assert set(range(read[0], read[-1] + 1)) - set(read) <= set(range(killed - 1, killed + 10))
    assert row is not None
    assert "doubled" not in (row.get("blocks") or {}) or row["blocks"]["doubled"] == 0
    (file,) = (tmp_path / "far" / "edge").glob("*.state")
    assert snapshot.unpack(file.read_bytes())[0]["world"]["scope"] == "global"  # and the global model comes back
    assert "edge.state_loaded" in (tmp_path / "far.edge.log").read_text()


async def test_a_region_may_say_what_its_nodes_measure_and_nothing_else(region: Region, tmp_path: Path) -> None:
    centre = region.settings(tmp_path / "centre", region.centre_url)
    far = region.settings(tmp_path / "far", region.agent_url)
    async with connection.connect(centre, "test") as client:
        await stream.ensure(client, centre)
        heard: list[str] = []

        async def hear(message: Any) -> None:
            heard.append(message.subject)

        await client.subscribe(">", cb=hear)
        async with connection.connect(far, "far") as agent:
            js = agent.jetstream(timeout=2)

            async def through() -> bool:
                try:
                    await js.publish(NAMES.node("edge", NODE), b"{}")
                except (nats.errors.Error, TimeoutError):
                    return False
                return True

            await until(through, 10)
            for subject in (NAMES.model, NAMES.node("availability", NODE), f"$KV.{NAMES.availability_bucket}.n"):
                await agent.publish(subject, b"{}")
            with pytest.raises((nats.errors.Error, TimeoutError)):
                await js.delete_stream(NAMES.telemetry)
            await agent.flush()
            await js.publish(NAMES.node("edge", NODE), b"{}")
        await client.flush()
        assert [subject for subject in heard if subject.startswith("spazio.edge.")]
        assert not [subject for subject in heard if subject.startswith(("spazio.model", "spazio.avail", "$KV"))]
        with pytest.raises(NotFoundError):
            await (await client.jetstream().key_value(NAMES.availability_bucket)).get("n")
