"""How far the pipeline has consumed a recording: who reads its streams, what is unread, and whether all is stored.

Everything is folded when each part's last folded message is the last one that the server has sent it, none is left to
be sent, and no message has come meanwhile. A part may have no replica that says so: a processor that starts again gets
it with its next message. Then everything is folded if none has come for as long as it takes to send again what was left
undone.
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
_AGAIN_SECONDS = 15.0  # after its lease has ended, for a processor to start and the messages to be sent again
_STARTING_SECONDS = 30.0


class Consumption:
    """Consumers of the telemetry and estimates streams.

    Attributes:
        close_behind: Set while the consumers are close enough behind the recording to publish more.
    """

    def __init__(self, client: Connection, settings: Settings) -> None:
        """Describe the streams; nothing is sent yet."""
        self._client, names = client, Names(settings.prefix)
        self._prefix, self._streams = settings.prefix, (names.telemetry, names.estimates)
        self._most_unread = 2 * settings.replay.ahead  # a processor and the history read each message
        self._history: Path = settings.history_dir
        self._seen: dict[str, set[str]] = {name: set() for name in self._streams}
        self._patience_seconds = settings.process.failover_seconds + _AGAIN_SECONDS
        self.close_behind = asyncio.Event()
        self.close_behind.set()

    async def update(self) -> None:
        """Count unread messages; whether that is few stays as it is if the server does not answer."""
        try:
            consumers = [await self._consumers(name) for name in self._streams]
        except errors.REQUEST_FAILED as error:
            log.info("consumers.count_failed", extra={"reason": str(error)})
            return
        unread = sum(each.pending for some in consumers for each in some)
        if unread > self._most_unread:
            self.close_behind.clear()
        else:
            self.close_behind.set()

    async def started(self, partitions: int) -> None:
        """Wait until a processor reads every partition, and the history both streams.

        Raises:
            Unstartable: They did not start in time.
        """
        lacking = "the processors"
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                while lacking := await self._lacking(partitions):  # noqa: ASYNC110 # the server does not say
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise Unstartable(f"{lacking} did not start in time; the log shows the reason") from None

    async def _lacking(self, partitions: int) -> str:
        """Return what does not read yet; empty: nothing."""
        try:
            consumers = [await self._consumers(name) for name in self._streams]
        except errors.REQUEST_FAILED as error:
            log.info("consumers.count_failed", extra={"reason": str(error)})
            return "the server"
        if {consumer_name(str(number)) for number in range(partitions)} - {each.name for each in consumers[0]}:
            return "the processors"
        return "" if all(map(_has_history, consumers)) else "the history"

    async def finished(self) -> None:
        """Wait until everything is folded and stored, or for long no replica has done a part that is left."""
        loop = asyncio.get_running_loop()
        since, before = loop.time(), list[int]()
        while loop.time() - since < self._patience_seconds:
            await asyncio.sleep(_LOOK_SECONDS)
            idle, last = False, list[int]()
            try:
                streams = await self._described()
                last = [each.last for each in streams]
                consumers = [await self._consumers(each.name) for each in streams]
                if self._read(streams, consumers):
                    folded = await self._folded(consumers)
                    if folded and [each.last for each in await self._described()] == last:
                        return
                    idle = folded is None and last == before
            except errors.REQUEST_FAILED as error:
                log.debug("consumers.count_failed", extra={"reason": str(error)})
            before = last
            if not idle:
                since = loop.time()

    async def _described(self) -> list[Stream]:
        return [await stream.describe(self._client, name) for name in self._streams]

    async def _consumers(self, name: str) -> list[Consumer]:
        """Return the consumers of a stream, and remember who they are."""
        consumers = await stream.consumers(self._client, name)
        self._seen[name] |= {each.name for each in consumers}
        return consumers

    def _read(self, streams: Sequence[Stream], consumers: Sequence[Sequence[Consumer]]) -> bool:
        """Tell whether all who have read are there and were sent everything, and the history is one and has written it.

        A server that starts again has lost those that processors make again.
        """
        done = {layout.identity(name): sequence for name, sequence in layout.committed(self._history).items()}
        return all(
            self._seen[described.name] <= {each.name for each in some}
            and _has_history(some)
            and not any(each.pending for each in some)
            and all(each.name or each.delivered <= done.get(described.identity, 0) for each in some)
            for described, some in zip(streams, consumers, strict=True)
        )

    async def _folded(self, consumers: Sequence[Sequence[Consumer]]) -> bool | None:
        """Tell whether all that was sent is folded, and the rows of it are stored; None: no replica does a part."""
        replicas = await worker_pool.replicas(self._client, self._prefix, wait_seconds=_ANSWER_SECONDS)
        folded: dict[str, int] = {}
        for replica in replicas:
            for part, report in replica.parts.items():
                name = consumer_name(part)
                folded[name] = max(report["sequence"], folded.get(name, 0))
        sent = {each.name: each.delivered for some in consumers for each in some if each.name and each.delivered}
        if any(folded[name] < sent[name] for name in sent.keys() & folded.keys()):
            return False
        return True if sent.keys() <= folded.keys() else None


def _has_history(consumers: Sequence[Consumer]) -> bool:
    """Tell whether the history reads a stream: alone, and all of it."""
    return any(each.whole and not each.name for each in consumers)
