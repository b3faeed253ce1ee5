"""What one task of a process has read, for another task that reads the same: the server sends it once.

Two tasks fold the messages of a partition, each with a lease, a position and a cursor of its own. As long as one
process does both, the second takes what the first has read. It reads by itself where it is elsewhere in the stream: at
first, when it falls too far behind, and when the first task ends. Which way a message came changes no result.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice

from bus.client import Client
from bus.reading.lease import Lease
from bus.reading.leased import Ahead, Calm, LeasedReader
from bus.reading.progress import Received
from bus.reading.setback import Mark

FEED_BYTES = 64 << 20  # payloads that wait in all feeds of a process together


class Feed:
    """Messages of some subjects, without a gap, that wait for the second task.

    Attributes:
        skipped: Number of messages that both tasks skip and that the second has not counted.
        arrived: Set while messages wait, and when something else has changed.
        generation: Number of times that the first task has begun again, or somewhere else. A server that came back with
            less gives the same sequences to other messages, so they can be compared within a generation only.
    """

    def __init__(self, pattern: str, max_bytes: int = FEED_BYTES) -> None:
        """Start empty, without a second task.

        Args:
            pattern: What the second task reads: subjects that begin so, before the final `>`.
            max_bytes: Payloads that wait at most; then the oldest are dropped, and the second task reads by itself.
        """
        self._prefix, self._max_bytes = pattern.removesuffix(">"), max_bytes
        self._messages: deque[Received] = deque()
        self._bytes = self._begin = 0
        self._end = -1
        self._followed = False
        self.skipped = 0
        self.arrived, self.generation = asyncio.Event(), 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def seconds(self) -> float:
        """Time between the first and the last of the messages, by the server's clock."""
        return (self._messages[-1].stored_us - self._messages[0].stored_us) / 1e6 if self._messages else 0.0

    def follow(self) -> None:
        """Keep what is put from now on."""
        self.end()
        self._followed = True

    def leave(self) -> None:
        """Keep nothing, since the second task does not run here."""
        self.end()
        self._followed = False

    def put(self, after: int, messages: Sequence[Received], end: int) -> None:
        """Keep what the first task has read behind a position and up to another, in stream order.

        What lacks in between was skipped by the first task, and is by the second.
        """
        if not self._followed or end == after:
            return
        if after != self._end:
            self.end()
            self._begin = after
        wanted = [message for message in messages if message.subject.startswith(self._prefix)]
        self._messages += wanted
        self._bytes += sum(len(message.data) for message in wanted)
        self._end = end
        while self._bytes > self._max_bytes:
            self._drop()
        self.arrived.set()

    def end(self) -> None:
        """Forget everything, as the first task has ended."""
        self._messages.clear()
        self._bytes, self._begin, self._end, self.skipped = 0, 0, -1, 0
        self.generation += 1
        self.arrived.set()

    def covers(self, position: int) -> bool:
        """Tell whether all messages behind a position, up to what the first task has read, are here."""
        return self._begin <= position <= self._end

    def take(self, position: int, most: int) -> list[Received]:
        """Return messages behind a position that is covered, `most` at most; those up to the last one are gone here."""
        while self._messages and self._messages[0].sequence <= position:
            self._drop()
        taken = list(islice(self._messages, most))
        for _ in taken:
            self._drop()
        self._begin = max(self._begin, position)
        if not self._messages:
            self.arrived.clear()
        return taken

    def _drop(self) -> None:
        message = self._messages.popleft()
        self._bytes -= len(message.data)
        self._begin = message.sequence


def reader(client: Client, lease: Lease, feed: Feed | None, *, second: bool, after: Mark, batch: int) -> LeasedReader:
    """Return the reader of the first or second task of a feed; without one, a `LeasedReader`."""
    if feed is None:
        return LeasedReader(client, lease, after=after, batch=batch)
    kind = SecondReader if second else FirstReader
    return kind(client, lease, feed, after=after, batch=batch)


class FirstReader(LeasedReader):
    """The reader of the first task: leaves what it reads to the second."""

    def __init__(self, client: Client, lease: Lease, feed: Feed, *, after: Mark, batch: int) -> None:
        """Describe the reader, as `LeasedReader`; what it reads waits in `feed`."""
        super().__init__(client, lease, after=after, batch=batch)
        self._feed = feed

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> list[Received]:
        """Return messages as `LeasedReader.read`."""
        after = self.position
        messages = await super().read(linger_seconds=linger_seconds, timeout_seconds=timeout_seconds)
        self._feed.put(after, messages, self.position)
        return messages

    async def skip_ahead(self, seconds: float, apart: Sequence[str], calm: Calm = list) -> Ahead:
        """Continue near the end of the stream, as `LeasedReader.skip_ahead`; the second task does as well."""
        after = self.position
        ahead = await super().skip_ahead(seconds, apart, calm)
        self._feed.put(after, ahead.messages, self.position)
        self._feed.skipped += ahead.left_out
        return ahead

    def take_skipped(self) -> int:
        """Return how many messages were skipped since the last call, as `LeasedReader.take_skipped`."""
        count = super().take_skipped()
        self._feed.skipped += count
        return count

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        self._feed.end()


class SecondReader(LeasedReader):
    """The reader of the second task: takes what the first has read, wherever that has no gap."""

    def __init__(self, client: Client, lease: Lease, feed: Feed, *, after: Mark, batch: int) -> None:
        """Describe the reader, as `LeasedReader`; it follows `feed` from now on."""
        super().__init__(client, lease, after=after, batch=batch)
        self._feed, self._fed, self._generation, self._most = feed, False, -1, batch
        feed.follow()

    @property
    def pending(self) -> int:
        """Number of messages that wait behind the last one returned."""
        return len(self._feed) if self._fed else super().pending

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> list[Received]:
        """Return messages as `LeasedReader.read`, or what the first task has read since.

        Before a generation feeds it, it opens its consumer again: that sees that the server still has what was read.
        """
        generation = self._feed.generation
        if generation != self._generation or not self._feed.covers(self.position):
            self._fed = False
            if generation != self._generation:
                await self.close()
            messages = await super().read(linger_seconds=linger_seconds, timeout_seconds=timeout_seconds)
            self._generation = generation
            return messages
        if not self._fed:
            self._fed, self._feed.skipped = True, 0
            await self.close()
            self._held.keep()
        if self._verification_due():
            await self._held.verify(pinned=True)
        return await self._take_fed(linger_seconds, timeout_seconds)

    async def skip_ahead(self, seconds: float, apart: Sequence[str], calm: Calm = list) -> Ahead:
        """Continue near the end of the stream, as `LeasedReader.skip_ahead`, unless the first task feeds it."""
        return Ahead([]) if self._fed else await super().skip_ahead(seconds, apart, calm)

    def take_skipped(self) -> int:
        """Return how many messages were skipped since the last call, also by the first task while it feeds this one."""
        count = super().take_skipped()
        if self._fed:
            count, self._feed.skipped = count + self._feed.skipped, 0
        return count

    async def _take_fed(self, linger_seconds: float, timeout_seconds: float | None) -> list[Received]:
        """Wait for messages, and then for more of them."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._feed.arrived.wait()
        except TimeoutError:
            return []
        await asyncio.sleep(max(0.0, linger_seconds - self._feed.seconds))
        if self._generation != self._feed.generation or not self._feed.covers(self.position):
            return []
        if messages := self._feed.take(self.position, self._most):
            self._progress.position, self._progress.stored_us = messages[-1].sequence, messages[-1].stored_us
        return messages

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        self._feed.leave()
