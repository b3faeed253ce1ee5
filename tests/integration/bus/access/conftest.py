"""A real server with accounts and roles, started once for the tests of a file."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from bus import connection
from bus.connection import Connection
from tests.integration.bus.access.contract import _create
from tests.support.server.secured import Attacker, Secured, attacker, secured


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured")) as server:
        asyncio.run(_create(server))
        yield server


@pytest.fixture
async def node(running: Secured) -> AsyncIterator[Attacker]:
    made = await attacker(running, "n1", "_INBOX_node.n1")
    yield made
    await made.client.close()


@pytest.fixture
async def admin(running: Secured) -> AsyncIterator[Connection]:
    async with connection.connect(running.settings("admin"), "admin") as client:
        yield client
