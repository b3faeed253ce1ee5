"""What a command that reads the live pipeline says when the server goes away meanwhile, or lacks what it asks for."""

import pytest
from nats.aio.client import Client

from bus import stream
from schemas.settings import Settings
from schemas.subject import Names
from spazio.terminal import latest
from tests.conftest import NatsServer


async def test_a_server_that_goes_away_during_a_request_is_not_reported_to_lack_anything(
    settings: Settings, nats_server: NatsServer
) -> None:
    async def asked() -> None:
        async with latest.dial(settings) as client:
            nats_server.kill()
            await stream.describe(client, Names().telemetry)

    with pytest.raises(latest.Unreachable, match=r"went away, or did not answer in time: try again$"):
        await asked()


async def test_a_server_without_the_bucket_of_the_cache_is_reported_to_lack_it(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    await client.jetstream().delete_stream(f"KV_{Names().availability_bucket}")
    with pytest.raises(latest.Unreachable, match=r"has no bucket SPAZIO_AVAILABILITY: start the cache sink$"):
        async with latest.follow(settings):
            pass
