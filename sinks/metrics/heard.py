"""When something was last heard of each key.

So what is silent is freed by time: neither a scrape nor a message is needed, and what a message says of its own time
does not count.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Heard(Generic[Key]):
    """Keys in the order in which they were last heard of."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty; a key is silent after so many seconds by the clock."""
        self._seconds, self._clock = seconds, clock
        self._at: OrderedDict[Key, float] = OrderedDict()

    def note(self, key: Key) -> None:
        """Note that something was heard of a key now."""
        self._at[key] = self._clock()
        self._at.move_to_end(key)

    def silent(self) -> list[Key]:
        """Return the keys that are silent, and forget them."""
        oldest, gone = self._clock() - self._seconds, list[Key]()
        while self._at and next(iter(self._at.values())) < oldest:
            key, _ = self._at.popitem(last=False)
            gone.append(key)
        return gone
