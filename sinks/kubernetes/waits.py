"""How long objects have waited for a write, and in which order they are looked at."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

_TURN = 64

Thing = TypeVar("Thing")


class Waits:
    """The time of each object's last write; of one that was never written, when it was first seen."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def written(self, key: str, now: float) -> None:
        """Take note of a write."""
        self._since[key] = now

    async def oldest_first(self, present: Mapping[str, Thing], now: float) -> AsyncIterator[tuple[str, Thing, float]]:
        """Yield (key, object, seconds waited); those that wait for longest first, since a look may be broken off.

        Args:
            present: All objects that there are; others are forgotten.
            now: Seconds since the epoch.
        """
        self._since = {key: self._since.get(key, now) for key in present}
        for number, key in enumerate(sorted(present, key=lambda key: self._since[key])):
            if number % _TURN == 0:
                await asyncio.sleep(0)  # others have a turn
            yield key, present[key], now - self._since[key]
