"""How far the pipeline has consumed a recording: who reads its streams, what is unread, and whether all is stored."""

import asyncio
import logging
from pathlib import Path

from bus import errors, stream
from bus.connection import Connection
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout
from spazio.service.child import Unstartable

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
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
        self._telemetry, self._estimates = names.telemetry, names.estimates
        self._most_unread = 2 * settings.replay.ahead  # a processor and the history read each message
        self._history: Path = settings.history_dir
        self.readers = self._unread = 0
        self.close_behind = asyncio.Event()
        self.close_behind.set()

    async def update(self) -> None:
        """Count consumers and unread messages; the counts stay as they are if the server does not answer."""
        readers = unread = 0
        try:
            for name in (self._telemetry, self._estimates):
                consumers = await stream.consumers(self._client, name)
                unread += sum(consumer.pending for consumer in consumers)
                readers += len(consumers) if name == self._telemetry else 0
        except errors.REQUEST_FAILED as error:
            log.info("consumers.count_failed", extra={"reason": str(error)})
            return
        self.readers, self._unread = readers, unread
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
        """Wait until everything is read and stored, and no new estimates have appeared for a while."""
        loop = asyncio.get_running_loop()
        last = now = -1
        since = loop.time()
        while loop.time() - since < _QUIET_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                now = (await stream.describe(self._client, self._estimates)).last
                quiet = now == last and not self._unread and await self._written()
            except errors.REQUEST_FAILED:
                quiet = False
            if not quiet:
                last, since = now, loop.time()

    async def _written(self) -> bool:
        """Tell whether the history has written everything that it has read."""
        done = {layout.identity(name): sequence for name, sequence in layout.committed(self._history).items()}
        for name in (self._telemetry, self._estimates):
            identity = (await stream.describe(self._client, name)).identity
            for consumer in await stream.consumers(self._client, name):
                if not consumer.durable and consumer.delivered > done.get(identity, 0):
                    return False
        return True
