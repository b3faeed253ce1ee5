"""What the dashboard's server reads from the bus when it is asked: the pipeline, dead letters, the newest model."""

from typing import Any

import aiohttp
from nats.aio.client import Client

from schemas import codec
from schemas.messages.estimate import Model
from schemas.settings import Settings
from schemas.subject import Names
from tests.support.dashboard.pages import served


async def test_the_pipeline_is_shown_with_its_dead_letters(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    headers = {"Spazio-Error": "it is <b>garbage</b>", "Spazio-Subject": "spazio.samples.x"}
    await client.jetstream().publish("spazio.dead.samples.x", b"\xff<script>", headers=headers)
    async with served(client, settings) as address, web.get(f"{address}/api/pipeline") as answer:
        state = await answer.json()
    assert state["errors"] == {}
    assert {stream["name"] for stream in state["streams"]} >= {"SPAZIO_TELEMETRY", "SPAZIO_ESTIMATES", "SPAZIO_DEAD"}
    letters = state["letters"]
    assert (letters["count"], letters["seconds"]) == (1, settings.nats.dead_max_age_seconds)
    (letter,) = letters["newest"]
    assert (letter["reason"], letter["bytes"]) == ("it is <b>garbage</b>", 9)
    assert letter["begin"] == {"text": "ff 3c 73 63 72 69 70 74 3e", "hex": True, "more": False}


async def test_dead_letters_are_counted_and_the_newest_listed_over_gaps(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    js, names = client.jetstream(), Names()
    for number in range(1, 41):
        await js.publish(names.dead("spazio.samples.x"), b"%d" % number)
    for deleted in (40, 37, 36, 5):
        await js.delete_msg(names.dead_letters, deleted)
    async with served(client, settings) as address, web.get(f"{address}/api/pipeline") as answer:
        letters = (await answer.json())["letters"]
    listed = [number for number in range(39, 0, -1) if number not in (37, 36)][:30]
    assert letters["count"] == 36
    assert [letter["sequence"] for letter in letters["newest"]] == listed
    assert [letter["begin"]["text"] for letter in letters["newest"]] == [*map(str, listed)]


async def test_the_newest_model_is_read_from_the_bus_and_what_is_none_is_reported(
    client: Client, settings: Settings, web: aiohttp.ClientSession
) -> None:
    names = Names()
    model = Model(scope="global", at_us=7, features=["cpu"], moment=[4.0], nodes=2, pods=3.5, cost=[1.0])
    async with served(client, settings) as address:

        async def shown() -> Any:
            async with web.get(f"{address}/api/model") as answer:
                return await answer.json()

        assert await shown() == {"model": None}
        for at_us in (1, 7):
            await client.jetstream().publish(names.model, codec.encode(model.model_copy(update={"at_us": at_us})))
        assert (await shown())["model"] == model.model_dump(exclude_none=True)
        await client.jetstream().publish(names.model, b"{}")
        assert "scope" in (await shown())["error"]
        await client.jetstream().delete_stream(names.telemetry)
        assert (await shown())["error"]
