"""How fast a recording may go: pieces of event time, and no further ahead of the global model than it was recorded."""

import asyncio
import json
from collections.abc import Sequence

from bus.client import Message
from producers.recorded.recording import Recorded

_FIRST_MODEL_SECONDS, _MODEL_SECONDS = 10.0, 1.0
_PIECE_US = 20_000
# A block that ends in a second began in the one before; the sums of a second are made when the next one begins, and
# the model when the sums of the next one are there. So this far behind the end of a block is the newest one.
_BEHIND = 3
_LEAST_LAG = 1.0  # the first block of a second comes before the model that it brings about


class Model:
    """How far the global model is."""

    def __init__(self, lag_seconds: float) -> None:
        self._lag = max(lag_seconds, _LEAST_LAG)
        self._second, self._first = 0, float("inf")
        self._patience = _FIRST_MODEL_SECONDS
        self._news = asyncio.Event()

    async def heard(self, message: Message) -> None:
        """Take note of a model."""
        self._second = json.loads(message.data)["at_us"] // 1_000_000
        self._patience = _MODEL_SECONDS
        self._news.set()

    async def follow(self, second: float) -> None:
        """Wait until the model is close behind a time; not for long, since a pause in the recording makes none.

        Args:
            second: End of what is to be sent next, in seconds; the first is that of the beginning of the recording.
        """
        self._first = min(self._first, int(second) - 1)
        needed = int(second) - _BEHIND - self._lag
        if not self._patience or needed < self._first or self._second >= needed:
            return
        try:
            async with asyncio.timeout(self._patience):
                while self._second < needed:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self._patience = 0.0


def split(part: Sequence[Recorded]) -> list[list[Recorded]]:
    """Split where event time has moved on by 20 ms."""
    pieces: list[list[Recorded]] = []
    for item in part:
        if not pieces or item.end_us - pieces[-1][0].end_us > _PIECE_US:
            pieces.append([])
        pieces[-1].append(item)
    return pieces
