"""A loss of power: a server that comes back with its storage as it was some seconds before."""

import asyncio
import shutil
from pathlib import Path

import nats.errors
from nats.aio.client import Client
from nats.js.errors import ServiceUnavailableError

from tests.support.server.natsd import Natsd
from tests.support.server.program import stopped

_WRITTEN_SECONDS = 0.3  # after which the server has handed to the kernel what it has acknowledged


class Power:
    """Copies a server's storage, and puts the copy back while the server is dead."""

    def __init__(self, server: Natsd, folder: Path, stream: str = "") -> None:
        """Describe what to copy into a folder: the storage of one stream, or all of it."""
        self._server, self._copy = server, folder
        self._storage = server.config.parent / "jetstream"
        if stream:
            self._storage /= f"$G/streams/{stream}"

    async def synced(self) -> None:
        """Remember what is stored now."""
        await asyncio.sleep(_WRITTEN_SECONDS)
        shutil.rmtree(self._copy, ignore_errors=True)
        assert self._server.process is not None
        with stopped(self._server.process.pid):  # it makes files and removes them
            shutil.copytree(self._storage, self._copy)

    def lose(self) -> None:
        """Kill the server and start it with what was remembered."""
        self._server.kill()
        shutil.rmtree(self._storage)
        shutil.copytree(self._copy, self._storage)
        self._server.start()


async def publish(client: Client, subject: str, payload: bytes) -> None:
    """Publish until the stream acknowledges."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.jetstream(timeout=1).publish(subject, payload)
            except (nats.errors.Error, ServiceUnavailableError, TimeoutError, OSError):
                await asyncio.sleep(0.05)
            else:
                return
