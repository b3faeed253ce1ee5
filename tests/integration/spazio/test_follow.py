"""`spazio load --follow true` on a real server: what the cluster watch has published becomes telemetry."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from nats.aio.client import Client

from bus import api
from bus.health import Health
from bus.reading.reader import Reader
from schemas import codec
from schemas.live import Live
from schemas.messages.facts import PodFacts
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, SampleBlock
from schemas.settings import Settings
from schemas.subject import Names, kind_and_node, token
from spazio.generator.cluster import Follow
from spazio.service.service import Context
from tests.e2e.kubernetes.watch.watching import until
from tests.support.background import background
from tests.unit.producers.simulated.test_simulate_follow import node, pod

NAMES = Names()
KINDS: dict[str, Any] = {"samples": SampleBlock, "pods": PodUsageBlock, "containers": ContainerEvent}


@asynccontextmanager
async def following(client: Client, settings: Settings, **simulated: Any) -> AsyncIterator[Health]:
    own = settings.simulated.model_copy(update={"follow": True, **simulated})
    settings, health = settings.model_copy(update={"simulated": own}), Health()
    follow = Follow(Context(client, settings, health, Live(settings)))  # type: ignore[arg-type] # any client will do
    async with background(follow.run()):
        yield health


async def telemetry(client: Client, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """Return the telemetry in the stream, once it is enough."""
    messages: list[Any] = []
    subjects = [NAMES.part("*", kind) for kind in KINDS]
    async with asyncio.timeout(30), Reader(client, NAMES.telemetry, subjects) as reader:
        while not enough(messages):
            messages += [
                codec.decode_from(KINDS[kind_and_node(message.subject)[0]], message.data, message.subject)
                for message in await reader.read()
            ]
    return messages


async def keep(client: Client, facts: PodFacts) -> None:
    """Do what the watch does with a pod's facts."""
    await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{token(facts.pod)}", codec.encode(facts))
    await client.jetstream().publish(NAMES.node("podfacts", facts.node), codec.encode(facts))


@pytest.mark.slow
async def test_pods_from_the_bucket_and_from_the_stream_are_in_the_telemetry_of_their_nodes(
    client: Client, settings: Settings
) -> None:
    for name in ("n1", "n2.eu"):
        await client.jetstream().publish(f"$KV.{NAMES.nodes_bucket}.{token(name)}", codec.encode(node(name)))
    await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.uid-old", codec.encode(pod("old", 0)))

    def both(messages: list[Any]) -> bool:
        blocks = [each for each in messages if isinstance(each, PodUsageBlock)]
        return {tuple(each.pods) for each in blocks} >= {("uid-old",), ("uid-new",)}

    async with following(client, settings):
        await telemetry(client, lambda messages: len({each.node for each in messages}) == 2)
        await keep(client, pod("new", 0, on="n2.eu"))
        messages = await telemetry(client, both)
    assert {each.node for each in messages if isinstance(each, SampleBlock)} == {"n1", "n2.eu"}


@pytest.mark.slow
async def test_a_pod_that_begins_and_ends_is_reported_as_container_events_at_once(
    client: Client, settings: Settings
) -> None:
    await client.jetstream().publish(f"$KV.{NAMES.nodes_bucket}.n1", codec.encode(node()))
    async with following(client, settings):
        first = (await telemetry(client, lambda messages: len(messages) > 3))[-1]
        begun = pod("a", 0).model_copy(update={"at_us": first.at_us + 1_000_000})
        await keep(client, begun)
        await keep(client, begun.model_copy(update={"version": 3, "at_us": first.at_us + 1_500_000, "deleted": True}))
        messages = await telemetry(
            client, lambda messages: sum(isinstance(each, ContainerEvent) for each in messages) == 4
        )
    events = [each for each in messages if isinstance(each, ContainerEvent)]
    assert [(each.event, each.pod) for each in events] == [
        (event, "uid-a") for event in ("created", "started", "exited", "deleted")
    ]


@pytest.mark.slow
async def test_no_node_denies_a_pod_whose_facts_have_not_come_yet(client: Client, settings: Settings) -> None:
    await client.jetstream().publish(f"$KV.{NAMES.nodes_bucket}.n1", codec.encode(node()))
    async with following(client, settings):
        first = (await telemetry(client, bool))[0].at_us
        consumer = (await client.jetstream().consumers_info(NAMES.telemetry))[0].name
        pause = {"pause_until": (datetime.now(UTC) + timedelta(seconds=2)).isoformat()}
        await api.request(client, f"CONSUMER.PAUSE.{NAMES.telemetry}.{consumer}", pause, 2)
        await keep(client, pod("late", 0).model_copy(update={"at_us": first + 1_000_000}))
        messages = await telemetry(client, lambda messages: bool(messages) and messages[-1].at_us > first + 3_000_000)
    blocks = [each for each in messages if isinstance(each, SampleBlock)]
    pods = {(each.at_us - first) // 1_000_000: each.values[each.metrics.index("pods")] for each in blocks}
    assert pods == {0: 0} | dict.fromkeys(range(1, len(pods)), 1)


@pytest.mark.slow
async def test_without_facts_it_says_what_is_missing_and_goes_on_when_they_come(
    client: Client, settings: Settings
) -> None:
    await client.jetstream().delete_stream(f"KV_{NAMES.nodes_bucket}")
    async with following(client, settings) as health:

        async def missed() -> bool:
            return "start `spazio watch`" in health.problems.get("follow", "")

        await until(missed, 10, lambda: health.problems)
        await client.jetstream().create_key_value(bucket=NAMES.nodes_bucket)
        await client.jetstream().publish(f"$KV.{NAMES.nodes_bucket}.n1", codec.encode(node()))
        await telemetry(client, bool)
        assert health.problems == {}
