"""What services say of themselves once each, where a server delivers it twice."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from bus import connection
from bus.accounting import exchange
from bus.connection import Connection
from schemas import role
from schemas.subject import Names
from tests.support.server.secured import Secured, secured

SUBJECT = Names().of(role.FLOW)
SERVICES = ["cache", "dashboard", "extender", "history", "load", "metrics", "process", "watch"]
_RESTARTS = 15  # after every second, the server holds imports twice


@pytest.mark.slow
async def test_after_restarts_of_the_server_each_service_gives_account_once(tmp_path: Path) -> None:
    with secured(tmp_path) as running:
        async with contextlib.AsyncExitStack() as stack:
            clients = []
            for name in SERVICES:
                client = await stack.enter_async_context(connection.connect(running.settings(name), name))
                await exchange.serve(client, SUBJECT, name)
                clients.append(client)
            for _ in range(_RESTARTS):
                await restart(running, clients)
                async with connection.connect(running.settings("reader"), "reader") as asker:
                    reports = await exchange.ask(asker, SUBJECT, wait_seconds=0.3)
                assert [report.service for report in reports] == SERVICES


async def restart(running: Secured, clients: Sequence[Connection]) -> None:
    """Kill the server, start it again, and wait until all clients have come back together."""
    await asyncio.to_thread(running.kill)
    async with asyncio.timeout(20):
        while any(client.is_connected for client in clients):  # noqa: ASYNC110 # the clients' own tasks
            await asyncio.sleep(0.01)
        await asyncio.to_thread(running.start)
        while not all(client.is_connected for client in clients):  # noqa: ASYNC110 # see above
            await asyncio.sleep(0.01)
    for client in clients:
        await client.flush()
