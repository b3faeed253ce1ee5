"""How far the pipeline has consumed a recording: who reads its streams, what is unread, and whether all is stored.

Everything is folded when each part's last folded message is the last one that the server has sent it, none is left to
be sent, and no message has come meanwhile.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from bus import errors, stream
from bus.connection import Connection
from bus.folding import task, worker_pool
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout
from spazio.service.child import Unstartable

log = logging.getLogger(__name__)

_LOOK_SECONDS, _ANSWER_SECONDS = 0.2, 0.1
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
        self.readers = 0
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
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                while self.readers <= partitions:
                    await self.update()
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise Unstartable("the processors did not start in time; the log shows the reason") from None

    async def finished(self) -> None:
        """Wait until everything is folded and stored."""
        finished = False
        while not finished:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(*errors.REQUEST_FAILED):
                before = await self._last()
                finished = await self._folded() and await self._written() and await self._last() == before

    async def _last(self) -> list[int]:
        """Return the last sequence of each stream."""
        return [(await stream.describe(self._client, name)).last for name in self._streams]

    async def _folded(self) -> bool:
        """Tell whether the processors have folded, and stored the rows of, everything that was there before."""
        consumers = [each for name in self._streams for each in await stream.consumers(self._client, name)]
        if any(consumer.pending for consumer in consumers):
            return False
        replicas = await worker_pool.replicas(self._client, self._prefix, wait_seconds=_ANSWER_SECONDS)
        folded = {
            task.consumer_name(part): report["sequence"]
            for replica in replicas
            for part, report in replica.parts.items()
        }
        return all(folded.get(each.name, 0) >= each.delivered for each in consumers if each.name)

    async def _written(self) -> bool:
        """Tell whether the history has written everything that it has read."""
        done = {layout.identity(name): sequence for name, sequence in layout.committed(self._history).items()}
        for name in self._streams:
            identity = (await stream.describe(self._client, name)).identity
            for consumer in await stream.consumers(self._client, name):
                if not consumer.name and consumer.delivered > done.get(identity, 0):
                    return False
        return True
