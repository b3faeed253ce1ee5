"""An extender that starts while nodes are silent: the stream has their last reports, which the bucket has forgotten."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats.aio.client import Client

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.extender.feed import source
from sinks.extender.feed.follow import Followed
from sinks.extender.state.cluster_state import STATES, ClusterState
from tests.e2e.kubernetes.watch.watching import until
from tests.support.extender.placement import report

NAMES = Names("spazio")


async def publish(client: Client, node: str, available: float, *, seconds_ago: float, to_bucket: bool = False) -> None:
    payload = codec.encode(report(node, time.time_ns() // 1000 - round(seconds_ago * 1e6), available))
    await client.jetstream().publish(NAMES.node("availability", node), payload)
    if to_bucket:
        await client.jetstream().publish(f"$KV.{NAMES.availability_bucket}.{token(node)}", payload)


@asynccontextmanager
async def followed(client: Client, settings: Settings) -> AsyncIterator[ClusterState]:
    state = ClusterState(settings)
    reading = Followed(client, settings, state)
    running = asyncio.create_task(reading.run())
    try:
        async with asyncio.timeout(60):
            await reading.ready.wait()
        yield state
    finally:
        running.cancel()
        await asyncio.wait({running})


def states(state: ClusterState, *names: str) -> list[str]:
    return [STATES[each] for each in state.states(state.rows.rows(names), time.time_ns() // 1000).tolist()]


async def test_a_new_extender_has_the_last_capacity_of_nodes_that_are_silent(
    client: Client, settings: Settings
) -> None:
    await publish(client, "silent", 9.0, seconds_ago=50)
    await publish(client, "silent", 0.25, seconds_ago=40)
    await publish(client, "fresh", 5.0, seconds_ago=0, to_bucket=True)
    await publish(client, "gone", 7.0, seconds_ago=settings.extender.stale_seconds + 1)
    await client.jetstream().publish(NAMES.node("availability", "bad"), b"{")
    async with followed(client, settings) as state:
        assert states(state, "silent", "fresh", "gone", "bad") == ["stale", "fresh", "unknown", "unknown"]
        assert state.rows["room"][state.rows.rows(["silent", "fresh"])].tolist() == [0.25, 5.0]


async def test_it_reads_the_reports_of_nodes_in_the_bucket_once_and_later_ones_from_the_bucket_alone(
    client: Client, settings: Settings
) -> None:
    await publish(client, "fresh", 5.0, seconds_ago=1, to_bucket=True)
    await publish(client, "fresh", 4.0, seconds_ago=0)
    kinds = "availability", "silence"
    before = [source.TAKEN.labels(kind)._value.get() for kind in kinds]

    def taken() -> list[float]:
        return [source.TAKEN.labels(kind)._value.get() - count for kind, count in zip(kinds, before, strict=True)]

    async with followed(client, settings) as state:
        row = state.rows.row("fresh")
        assert state.rows["room"][row] == 5.0, "the stream's is left to the bucket"
        assert taken() == [1, 1]
        await publish(client, "other", 3.0, seconds_ago=0)
        await publish(client, "fresh", 2.0, seconds_ago=0, to_bucket=True)

        async def came() -> bool:
            return bool(state.rows["room"][row] == 2.0)

        await until(came, 10, taken)
        assert taken() == [2, 1]
        assert states(state, "other") == ["unknown"]
