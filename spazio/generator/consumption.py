"""How far the pipeline has consumed a recording: who reads its streams, what is unread, and whether all is stored.

Everything is folded when each part's last folded message is the last one that the server has sent it, none is left to
be sent, and no message has come meanwhile. Where a part has nobody who says so, as while processors start again, two
seconds in which no message came tell the same.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from bus import errors, stream
from bus.connection import Connection
from bus.folding import worker_pool
from bus.folding.task import consumer_name
from bus.stream import Consumer, Stream
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout
from spazio.service.child import Unstartable

log = logging.getLogger(__name__)

_LOOK_SECONDS, _ANSWER_SECONDS = 0.2, 0.1
_QUIET_SECONDS = 2.0
_STARTING_SECONDS = 30.0


class Consumption:
    """Consumers of the telemetry and estimates streams.

    Attributes:
        readers: Number of consumers of the telemetry stream.
        close_behind: Set while the consumers are close enough behind the recording to publish more.
    """

    def __init__(self, client: Connection, settings: Settings) -> None:
        """Describe the streams; nothing is sent yet."""
        self._client, names = client, Names(settings.prefix)
        self._prefix, self._streams = settings.prefix, (names.telemetry, names.estimates)
        self._most_unread = 2 * settings.replay.ahead  # a processor and the history read each message
        self._history: Path = settings.history_dir
        self.readers = self._partitions = 0
        self.close_behind = asyncio.Event()
        self.close_behind.set()

    async def update(self) -> None:
        """Count consumers and unread messages; the counts stay as they are if the server does not answer."""
        readers = unread = 0
        try:
            for name in self._streams:
                consumers = await stream.consumers(self._client, name)
                unread += sum(consumer.pending for consumer in consumers)
                readers += len(consumers) if name == self._streams[0] else 0
        except errors.REQUEST_FAILED as error:
            log.info("consumers.count_failed", extra={"reason": str(error)})
            return
        self.readers = readers
        if unread > self._most_unread:
            self.close_behind.clear()
        else:
            self.close_behind.set()

    async def started(self, partitions: int) -> None:
        """Wait until a processor reads every partition, and the history reads all of them.

        Raises:
            Unstartable: They did not start in time.
        """
        self._partitions = partitions
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                while self.readers <= partitions:
                    await self.update()
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise Unstartable("the processors did not start in time; the log shows the reason") from None

    async def finished(self) -> None:
        """Wait until everything is folded and stored."""
        loop, before = asyncio.get_running_loop(), list[int]()
        since = loop.time()
        while loop.time() - since < _QUIET_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            idle = False
            try:
                streams = await self._described()
                consumers = [await stream.consumers(self._client, each.name) for each in streams]
                idle = not any(each.pending for some in consumers for each in some) and self._written(
                    streams, consumers
                )
                last = [each.last for each in streams]
                if idle and await self._folded(consumers) and [each.last for each in await self._described()] == last:
                    return
                idle, before = idle and last == before, last
            except errors.REQUEST_FAILED as error:
                log.info("consumers.count_failed", extra={"reason": str(error)})
            if not idle:
                since = loop.time()

    async def _described(self) -> list[Stream]:
        return [await stream.describe(self._client, name) for name in self._streams]

    def _written(self, streams: Sequence[Stream], consumers: Sequence[Sequence[Consumer]]) -> bool:
        """Tell whether the history has written everything that it has read."""
        done = {layout.identity(name): sequence for name, sequence in layout.committed(self._history).items()}
        return all(
            each.name or each.delivered <= done.get(described.identity, 0)
            for described, some in zip(streams, consumers, strict=True)
            for each in some
        )

    async def _folded(self, consumers: Sequence[Sequence[Consumer]]) -> bool:
        """Tell whether each part says that it has folded, and stored the rows of, everything that was sent to it."""
        if len(consumers[0]) <= self._partitions:  # the server has lost some, and processors make them again
            return False
        replicas = await worker_pool.replicas(self._client, self._prefix, wait_seconds=_ANSWER_SECONDS)
        folded = {
            consumer_name(part): report["sequence"] for replica in replicas for part, report in replica.parts.items()
        }
        return all(folded.get(each.name, 0) >= each.delivered for some in consumers for each in some if each.name)
