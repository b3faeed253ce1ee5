"""What a real agent writes to its connection."""

import asyncio
import os
import re
import sys

import pytest

from bus import connection, stream
from schemas import settings as all_settings
from schemas.settings import Settings
from tests.conftest import NatsServer

_SENT = re.compile(rb"HPUB \w+\.(\w+)\.")
_SECONDS = 15


@pytest.mark.slow
async def test_samples_and_usage_of_a_second_leave_in_one_piece(settings: Settings, nats_server: NatsServer) -> None:
    pieces: list[list[bytes]] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", nats_server.port)

        async def back() -> None:
            while data := await theirs.read(1 << 16):
                writer.write(data)

        answering = asyncio.create_task(back())
        while data := await reader.read(1 << 20):
            pieces.append(_SENT.findall(data))
            ours.write(data)
        answering.cancel()
        ours.close()
        writer.close()

    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
    listening = await asyncio.start_server(relay, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0", "SPAZIO_NATS_URL": url}
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "spazio", "agent", env=environ, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_SECONDS):
            while sum(b"pods" in sent for sent in pieces) < 3:  # noqa: ASYNC110 # the other end is a process
                await asyncio.sleep(0.05)
    finally:
        agent.terminate()
        await agent.wait()
        listening.close()
    with_usage = [sent for sent in pieces if b"pods" in sent][:3]
    assert with_usage == [[b"pods", b"samples"]] * 3
