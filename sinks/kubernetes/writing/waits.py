"""The time that objects have waited for a write, which decides their order."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

_TURN = 64

Thing = TypeVar("Thing")


class Waits:
    """The time of each object's last write, or of its first sight if it was never written."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def written(self, key: str, now: float) -> None:
        """Store the time of a write."""
        self._since[key] = now

    async def oldest_first(self, present: Mapping[str, Thing], now: float) -> AsyncIterator[tuple[str, Thing, float]]:
        """Yield (key, object, seconds waited), longest waiting first, because a round of writes may be interrupted.

        Args:
            present: All existing objects; others are forgotten.
            now: Seconds since the epoch.
        """
        self._since = {key: self._since.get(key, now) for key in present}
        for number, key in enumerate(sorted(present, key=lambda key: self._since[key])):
            if number % _TURN == 0:
                await asyncio.sleep(0)  # let other tasks run
            yield key, present[key], now - self._since[key]
