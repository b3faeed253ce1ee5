"""A client that rests between two reads: what arrives is the same, in larger pieces, and it notices what it must."""

import asyncio

from bus import connection
from bus.connection import DISCONNECTS, Connection
from bus.reading import tap
from schemas.settings import Settings
from tests.conftest import NatsServer
from tests.integration.bus.dying import answers, quick

_MESSAGES = 200


async def pieces(client: Connection, publisher: Connection, rest_seconds: float) -> int:
    """Return in how many pieces messages arrive that are sent one by one."""
    arrived: list[bytes] = []
    client.rest_seconds = rest_seconds
    listening = await tap.listen(client, lambda _subject, _reply, data, _headers: arrived.append(data))
    await client.flush()
    before = client.heard
    for number in range(_MESSAGES):
        await publisher.publish(listening.inbox, b"%d" % number)
        await publisher.flush()
    async with asyncio.timeout(60):
        while len(arrived) < _MESSAGES:  # noqa: ASYNC110 # the client's own task
            await asyncio.sleep(0.01)
    await listening.close()
    assert arrived == [b"%d" % number for number in range(_MESSAGES)]
    return client.heard - before


async def test_a_client_that_rests_gets_everything_in_order_and_in_fewer_pieces(settings: Settings) -> None:
    async with connection.connect(settings, "test") as client, connection.connect(settings, "publisher") as publisher:
        assert await pieces(client, publisher, 0.2) < await pieces(client, publisher, 0.0) / 2


async def test_a_client_that_rests_notices_that_the_server_has_died_and_comes_back(
    settings: Settings, nats_server: NatsServer
) -> None:
    async with connection.connect(quick(settings), "test") as client:
        client.rest_seconds = 0.1
        await answers(client)
        lost = DISCONNECTS._value.get()
        nats_server.kill()
        async with asyncio.timeout(5):
            while DISCONNECTS._value.get() == lost:  # noqa: ASYNC110 # the client's own task
                await asyncio.sleep(0.01)
        nats_server.start()
        await answers(client)
