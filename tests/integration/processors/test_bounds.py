"""Names that no subject can hold, through a real process and a real server."""

import asyncio
from typing import Any

import numpy as np
import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.messages.base import Message
from schemas.messages.prediction import Forecast
from schemas.settings import Settings
from schemas.subject import Names
from tests.integration.processors.test_engine import everything, running
from tests.support.processors import telemetry

NAMES = Names()
LONG = "\N{PINEAPPLE}" * 500
NODES = ("n0", "n1", "n2", "n3", "n4", "n5")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Workloads are observed each second, and forecast after a few; one partition, so that its sums come in order."""
    forecast = settings.forecast.model_copy(update={"seconds": 1, "initialization_seconds": 4.0})
    nats = settings.nats.model_copy(update={"partitions": 1})
    return settings.model_copy(update={"forecast": forecast, "nats": nats})


async def fill(client: Client, seconds: range) -> None:
    """Publish nodes with a pod each of an ordinary namespace and of one with a name of 500 characters."""
    random = np.random.default_rng(1)

    async def publish(kind: str, message: Message, node: str) -> None:
        await client.jetstream().publish(NAMES.node(kind, node), codec.encode(message))

    for second in seconds:
        for node in NODES:
            if second == seconds.start:
                for pod, namespace in (("good", "shop"), ("long", LONG)):
                    owner: dict[str, Any] = {"namespace": namespace, "owner_kind": "Deployment", "owner": "web"}
                    await publish("podfacts", telemetry.facts(node, f"{node}-{pod}", "shop/web", **owner), node)
            listed = [
                {"pod": f"{node}-{pod}", "workloads": "shop/web", "cpu_cores": 0.2, "memory_bytes": 1e8}
                for pod in ("good", "long")
            ]
            await publish("samples", telemetry.noisy(node, second, 2, random), node)
            await publish("pods", telemetry.usage(node, second, listed), node)


async def forecasts(client: Client, least: int) -> list[Forecast]:
    async with asyncio.timeout(40):
        while len(rows := await everything(client, NAMES.estimates, [NAMES.of("forecast", ">")])) < least:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return [codec.decode(Forecast, row.data) for row in rows]


@pytest.mark.slow
async def test_a_namespace_of_500_emoji_ends_nothing(client: Client, settings: Settings) -> None:
    with running(settings, "process") as process:
        await fill(client, range(20))
        before = await forecasts(client, 2)
        await fill(client, range(20, 40))
        after = await forecasts(client, len(before) + 2)
        assert process.poll() is None
    assert {forecast.namespace for forecast in after} == {"shop"}
    letter = await client.jetstream().get_last_msg(NAMES.dead_letters, NAMES.of("dead", "long"))
    assert (letter.headers or {})["Spazio-Error"].startswith("subject has 6")
    assert codec.decode(Forecast, letter.data or b"").namespace == LONG
