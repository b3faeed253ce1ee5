"""What a new state begins with: facts that the stream has no more, from the buckets."""

import asyncio
import contextlib

import pytest
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus.accounting.ledger import EXPIRED, LEDGER
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.settings import Settings, load
from schemas.subject import Names, partition, token
from spazio.recovery import facts as given
from tests.support.nats.client import Connection
from tests.support.nats.server import Server
from tests.support.processors import telemetry
from tests.unit.bus.folding.test_crashes import replica
from tests.unit.processors.prediction.fold.recordings import node_facts

NAMES = Names()
NODE = "n.example"


async def publish(client: Client, first: int, last: int) -> None:
    for second in range(first, last):
        block = telemetry.block(NODE, second, pods=2.0, cpu_util=0.1, memory_util=0.2, procs_running=1.4)
        await client.jetstream().publish(NAMES.node("samples", NODE), codec.encode(block))


async def newest(client: Client, second: int) -> Availability:
    """Wait for the availability of a second."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(NotFoundError):
                message = await client.jetstream().get_last_msg(NAMES.estimates, NAMES.node("availability", NODE))
                row = codec.decode(Availability, message.data or b"")
                if row.at_us >= (telemetry.START + second) * 1_000_000:
                    return row
            await asyncio.sleep(0.05)


async def put(client: Client) -> None:
    """Store facts in buckets and stream, as the watch does: a node that takes three pods, and what is no facts."""
    limited = node_facts(NODE, 1, 3.8, 6 << 30)
    limited.allocatable["pods"] = 3.0
    streams = client.jetstream()
    await streams.publish(NAMES.node("nodefacts", NODE), codec.encode(limited))
    nodes, pods = await streams.key_value(NAMES.nodes_bucket), await streams.key_value(NAMES.pods_bucket)
    await nodes.put(token(NODE), codec.encode(limited))
    await nodes.put("gone", codec.encode(node_facts("gone", 1, 1.0, 1)))
    await nodes.delete("gone")
    await pods.put("u1", codec.encode(telemetry.facts(NODE, "u1", "shop/web")))
    await pods.put("u2", b"garbage")


@pytest.mark.slow
async def test_a_new_state_has_facts_that_the_stream_has_no_more(
    server: Server, client: Connection, settings: Settings
) -> None:
    await put(client)
    async with replica(server, settings):
        await publish(client, 0, 5)
        assert (await newest(client, 3)).binding == "pods"
    await client.jetstream().purge_stream(NAMES.telemetry, seq=3)
    before = LEDGER.account("process", NAMES.telemetry).statement().outcomes.get(EXPIRED, 0)
    changed = load({"nats_partitions": "1", "policy_slowdown": "1.3"}, environ={})
    async with replica(server, changed):
        await publish(client, 5, 10)
        row = await newest(client, 8)
    assert (row.available, row.binding) == (1.0, "pods")
    outcomes = LEDGER.account("process", NAMES.telemetry).statement().outcomes
    assert outcomes.get(EXPIRED, 0) == before, "all that has expired was folded"


async def test_facts_of_a_partition_are_the_newest_of_its_own_nodes_and_pods(client: Connection) -> None:
    await put(client)
    for number in range(3):
        facts = await given.of_partition(client, NAMES, number, 3, 1)
        subjects = [subject for subject, _ in facts]
        own = [NAMES.part(number, kind, token(NODE)) for kind in ("nodefacts", "podfacts")]
        assert subjects == (own if number == partition(token(NODE), 3) else [])


async def test_tasks_that_wait_for_facts_together_share_a_read_and_a_later_task_reads_what_is_there_then() -> None:
    reads = 0

    async def read() -> given.Facts:
        nonlocal reads
        reads += 1
        number = reads
        await asyncio.sleep(0.01)
        return [("subject", b"%d" % number)]

    shared = given.SharedRead(read)
    assert list(await asyncio.gather(shared(), shared())) == [[("subject", b"1")]] * 2
    assert await shared() == [("subject", b"2")]
    first, second = asyncio.create_task(shared()), asyncio.create_task(shared())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == [("subject", b"4")]
