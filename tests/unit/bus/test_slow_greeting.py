"""A server that is slow to accept a user: what it sends before its answer must not be taken for the answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bus import connection
from bus.connection import Connection
from schemas import settings as all_settings
from tests.support.nats.server import VERSION

INFO = {"server_id": "SLOW", "version": VERSION, "proto": 1, "headers": True, "max_payload": 1 << 20}
PING, PONG = b"PING\r\n", b"PONG\r\n"


class Slow:
    """A server that answers the first ping of each connection with lines of its choice.

    Attributes:
        answers: What it answers; pings after the first get a pong.
        connections: Number of clients that it has accepted.
        lines: All that they have sent.
    """

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.connections, self.lines = answers, 0, list[bytes]()
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a client."""
        self.connections += 1
        self._writers.append(writer)
        answers = self.answers
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        while line := await reader.readline():
            self.lines.append(line)
            if line == PING:
                writer.writelines(answers)
                answers = (PONG,)

    def drop(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def connected(slow: Slow, folder: Path) -> AsyncIterator[Connection]:
    listening = await asyncio.start_server(slow.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    settings = all_settings.load({"nats_url": f"nats://127.0.0.1:{port}", "data_dir": str(folder)}, environ={})
    try:
        async with connection.connect(settings, "test") as client:
            yield client
    finally:
        slow.drop()
        listening.close()


async def arrives(client: Connection, slow: Slow, data: bytes) -> None:
    """Publish, and wait until the server has it without being asked for anything else."""
    await client.publish("x", data)
    async with asyncio.timeout(5):
        while data + b"\r\n" not in slow.lines:  # noqa: ASYNC110 # the server's own task
            await asyncio.sleep(0.01)


async def test_a_server_that_pings_before_it_answers_gets_what_is_published(tmp_path: Path) -> None:
    slow = Slow(PING, PING, PONG)
    async with connected(slow, tmp_path) as client:
        await arrives(client, slow, b"first")
        assert slow.lines.count(PONG) == 2
        slow.drop()
        async with asyncio.timeout(5):
            while slow.connections == 1 or not client.is_connected:  # noqa: ASYNC110 # the client's own task
                await asyncio.sleep(0.01)
        await arrives(client, slow, b"second")
        assert slow.lines.count(PONG) == 4


async def test_a_server_that_answers_something_else_is_not_taken_for_connected(tmp_path: Path) -> None:
    slow = Slow(b"+OK\r\n")
    waiting = asyncio.create_task(connected(slow, tmp_path).__aenter__())
    async with asyncio.timeout(5):
        while slow.connections < 2:  # noqa: ASYNC110 # the client tries again
            await asyncio.sleep(0.01)
    assert not waiting.done()
    slow.answers = (PONG,)
    async with asyncio.timeout(5):
        client = await waiting
    assert client.is_connected
    await arrives(client, slow, b"third")
    await client.close()
    slow.drop()


async def test_attempts_to_reconnect_that_break_off_leave_no_task_behind(tmp_path: Path) -> None:
    slow = Slow(PONG)
    async with connected(slow, tmp_path) as client:
        slow.answers = (b"+OK\r\n",)
        slow.drop()
        async with asyncio.timeout(5):
            while slow.connections < 4:  # noqa: ASYNC110 # the client tries again
                await asyncio.sleep(0.01)
        slow.answers = (PONG,)
        async with asyncio.timeout(5):
            while not client.is_connected:  # noqa: ASYNC110 # the client's own task
                await asyncio.sleep(0.01)
        await arrives(client, slow, b"data")
        pinging = [task for task in asyncio.all_tasks() if "_ping_interval" in str(task.get_coro())]
        assert len(pinging) == 1
