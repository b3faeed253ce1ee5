"""What an agent kept while its server was away, in the order in which a real server stores it then."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from nats.aio.client import Client

from bus.connection import Connection
from bus.health import Health
from bus.reading.reader import Reader
from processors.decode import Block, Summary
from processors.partition.partition import Partition
from processors.partition.plan import Entry
from processors.workload.pod_class import Tally
from producers.simulated.cluster import Cluster
from producers.simulated.message import Writer
from schemas import codec
from schemas.live import Live
from schemas.messages.telemetry import ContainerEvent
from schemas.settings import Settings
from schemas.subject import Names, kind_and_node
from spazio.command import agent
from spazio.service.service import Context

NAMES = Names()
KINDS = ("samples", "pods", "containers")
OUTAGE = 300  # seconds; those before and after it are sent as they are measured

Message = tuple[str, bytes]


def measured(seconds: int) -> list[Message]:
    """Return kind and payload of what a node with 48 pods measures, in the order of time."""
    writer = Writer(cluster := Cluster(1, seed=3, churn_per_minute=6, wave_seconds=1e9), 1_795_000_000_000_000, KINDS)
    timed = sorted(
        (made for _ in range(seconds) for made in writer.write(cluster.step())), key=lambda made: made.due_us
    )
    return [(made.kind, made.payload(writer.start_us)) for made in timed]


async def stored(client: Client, settings: Settings, messages: Sequence[Message]) -> list[Message]:
    """Return what a stream has of messages that an agent made while the server was away."""
    assert isinstance(client, Connection)
    context = Context(client, settings, Health(), Live(settings))
    publisher = agent._Publisher(context, agent.Samples(), "boot", None)
    for kind, payload in messages:
        if kind == "containers":
            publisher.put_event(codec.decode(ContainerEvent, payload))
        elif kind == "pods":
            publisher.keep_usage(json.loads(payload)["seq"], payload)
        else:
            publisher.put_block(json.loads(payload)["seq"], payload)
    publisher.put_usages()
    sending = [asyncio.create_task(outbox.run()) for outbox in publisher.outboxes]
    assert all(await asyncio.gather(*(outbox.flush(60) for outbox in publisher.outboxes)))
    for task in sending:
        task.cancel()
    result: list[Message] = []
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        while received := await reader.read(timeout_seconds=0.3):
            result += [(kind_and_node(message.subject)[0], message.data) for message in received]
    return result


def folded(settings: Settings, messages: Sequence[Message], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how much usage, and how many seconds as churn, a processor takes in, and how many events it ignores."""
    partition, counts = Partition(settings, 0), {"usage": 0, "churn": 0}
    learn, entry = partition._learn, partition._state.admission._entry

    def learned(tallies: list[Tally]) -> None:
        counts["usage"] += len(tallies)
        learn(tallies)

    def entered(block: Block | Summary) -> Entry:
        made = entry(block)
        counts["churn"] += made.stirred
        return made

    monkeypatch.setattr(partition, "_learn", learned)
    monkeypatch.setattr(partition._state.admission, "_entry", entered)
    for begin in range(0, len(messages), 50):
        partition.fold([(NAMES.part(0, kind, "sim-00000"), payload) for kind, payload in messages[begin : begin + 50]])
    return counts | {"ignored": partition.ignored}


@pytest.mark.slow
async def test_usage_and_churn_of_minutes_without_a_server_count_as_if_it_had_been_there(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = measured(30 + OUTAGE)
    begin = 30 * len(messages) // (30 + OUTAGE)
    undisturbed = folded(settings, messages, monkeypatch)
    assert undisturbed["usage"] > OUTAGE
    assert undisturbed["churn"] > 30
    late = await stored(client, settings, messages[begin:])
    assert folded(settings, messages[:begin] + late, monkeypatch) == undisturbed
