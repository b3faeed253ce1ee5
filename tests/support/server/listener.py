"""A thread that listens on the bus with a client of its own."""

import asyncio
import threading
from abc import ABC, abstractmethod

import nats
from nats.aio.client import Client

from tests.support.server.raw import reached


class Listener(ABC):
    """Listens from its start until it is closed."""

    def __init__(self, address: str, credential: str | None = None) -> None:
        self._address, self._credential = address, credential
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()), name="listener")
        self._thread.start()
        assert self._ready.wait(20)

    @abstractmethod
    async def subscribe(self, client: Client) -> None:
        """Subscribe to what is to be heard."""

    async def _listen(self) -> None:
        client = await nats.connect(self._address, user_credentials=self._credential)
        await self.subscribe(client)
        await reached(client)
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._end.wait()
        await client.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
