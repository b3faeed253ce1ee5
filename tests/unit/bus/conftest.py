"""A server in memory with the streams of one partition, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from bus import stream
from schemas import settings as all_settings
from schemas.settings import Settings
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server


@pytest.fixture
def settings() -> Settings:
    return all_settings.load({"nats_partitions": "1"}, environ={})


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server, settings: Settings) -> AsyncIterator[Connection]:
    async with connect(server) as connected:
        await stream.ensure(connected, settings)
        yield connected
