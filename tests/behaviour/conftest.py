"""The same tests on a real nats-server and on the one in memory: what spazio relies on, both must do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest
from nats.aio.client import Client

from bus import connection
from schemas import settings as all_settings
from tests.conftest import NatsServer
from tests.support.nats import client as memory
from tests.support.nats.server import Server


class Bus(Protocol):
    """A server that tests connect to, kill and start again."""

    def connect(self) -> AbstractAsyncContextManager[Client]: ...

    async def kill(self) -> None: ...

    async def start(self) -> None: ...


class Real:
    def __init__(self, server: NatsServer) -> None:
        self._server = server

    def connect(self) -> AbstractAsyncContextManager[Client]:
        settings = all_settings.load({"nats_url": self._server.url}, environ={})
        return connection.connect(settings, "test")

    async def kill(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)


class InMemory:
    def __init__(self) -> None:
        self.server = Server()

    def connect(self) -> AbstractAsyncContextManager[Client]:
        return memory.connect(self.server)

    async def kill(self) -> None:
        self.server.kill()

    async def start(self) -> None:
        self.server.start()


@pytest.fixture(params=["nats-server", "memory"])
def bus(request: pytest.FixtureRequest) -> Bus:
    return InMemory() if request.param == "memory" else Real(request.getfixturevalue("nats_server"))


@pytest.fixture
async def client(bus: Bus) -> AsyncIterator[Client]:
    async with bus.connect() as connected:
        yield connected
