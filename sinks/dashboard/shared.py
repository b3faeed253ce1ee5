"""An answer that pages which ask at about the same time share."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec


class Shared:
    """The newest answer of a reader, as JSON."""

    def __init__(self, read: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Name the reader.

        Args:
            read: Returns the answer as values of JSON.
            seconds: Age up to which an answer is given again.
        """
        self._read, self._seconds = read, seconds
        self._answer: tuple[float, bytes] | None = None
        self._reading = asyncio.Lock()

    async def get(self) -> bytes:
        """Return the answer; who asks while it is read waits for the same one."""
        now = asyncio.get_running_loop().time
        async with self._reading:
            if self._answer is None or now() - self._answer[0] > self._seconds:
                answer = msgspec.json.encode(await self._read())
                self._answer = now(), answer
            return self._answer[1]
