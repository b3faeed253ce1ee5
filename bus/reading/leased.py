"""A reader of the consumer that a lease holds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

import nats.errors

from bus.client import Client
from bus.reading import progress, setback
from bus.reading.lease import Lease
from bus.reading.progress import HEARTBEATS, Progress, Received
from bus.reading.reader import Reader
from bus.reading.setback import Mark

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Calm = Callable[[list[Received]], list[Received]]

_VERIFY_SECONDS = 10.0


class Ahead(NamedTuple):
    """What was read where a reader was to continue near the end of the stream.

    Attributes:
        messages: Messages that the server was asked for already, and then what is kept of those that were read apart,
            in stream order.
        continues: Whether it continues there; otherwise nothing is skipped.
        left_out: Number of messages that were read apart and not kept.
    """

    messages: list[Received]
    continues: bool = False
    left_out: int = 0


class LeasedReader(Reader):
    """Reads the stream and subjects of a held lease; `read` raises `Lost` once another replica has the lease."""

    def __init__(self, client: Client, lease: Lease, *, after: int | Mark = 0, batch: int = 500) -> None:
        """Describe the reader; nothing is sent before the first `read`.

        Args:
            client: Connection.
            lease: Held lease; its consumer is read.
            after: Read from the sequence behind this one, as `Reader`.
            batch: Messages requested at once.
        """
        super().__init__(
            client, lease.stream, lease.subjects, after=after, batch=batch, timeout_seconds=lease.timeout_seconds
        )
        self._lease = self._held = lease
        self._expires, self._heartbeat = lease.expires_seconds, lease.expires_seconds / HEARTBEATS
        self._progress = Progress(
            self.mark, pending=0, batch=batch, heartbeat_seconds=self._heartbeat, nudges=progress.NUDGES
        )
        self._verified = asyncio.get_running_loop().time()
        self._skipped = 0

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> list[Received]:
        """Return messages as `Reader.read`; see from time to time that the consumer is as the lease made it."""
        if self._verification_due():
            await self._held.verify()
        return await super().read(linger_seconds=linger_seconds, timeout_seconds=timeout_seconds)

    async def skip_ahead(self, seconds: float, apart: Sequence[str], calm: Calm = list) -> Ahead:
        """Continue near the end of the stream, without the messages before, which the server does not send then.

        Nothing is skipped if the end is not that far, or if the server does not answer in time. What was read apart
        until then is read again later.

        Args:
            seconds: How far before the end to continue.
            apart: Filters for messages of which none is skipped.
            calm: Returns which of messages that are read apart are kept.
        """
        end = setback.before_end(self._client, self.stream, self.mark, seconds, self._timeout)
        if (mark := await self._in_time(end)) is None:
            return Ahead([])
        messages = await self._drained()
        if self.position >= mark.sequence or (read := await self._in_time(self._between(mark, apart, calm))) is None:
            return Ahead(messages)
        between, count = read
        renewed = 0
        if self._tap is not None:  # the lease has to last while the consumer is reset; what comes of it is skipped
            renewed = 1
            await self._request(self._tap, renewed)
        await self.close()
        self._progress.skip(mark)
        await self._open()
        self._skipped += max(0, renewed + self._before - self._progress.pending - count)
        return Ahead(messages + between, continues=True, left_out=count - len(between))

    def take_skipped(self) -> int:
        """Return how many messages were skipped since the last call, without those that came in that instant."""
        count, self._skipped = self._skipped, 0
        return count

    async def _in_time(self, asked: Awaitable[Answer | None]) -> Answer | None:
        """Return what the server says, within the time limit; None: nothing."""
        try:
            async with asyncio.timeout(self._timeout):
                return await asked
        except (nats.errors.Error, TimeoutError) as error:
            log.info("reader.not_ahead", extra={"stream": self.stream, "reason": repr(error)})
            return None

    async def _drained(self) -> list[Received]:
        """Return what comes of requests that are open; the server would answer them with what a reader lacks then."""
        loop, messages = asyncio.get_running_loop(), list[Received]()
        deadline = loop.time() + self._expires
        while self._tap is not None and self._progress.wanted > 0 and loop.time() < deadline:
            if self._arrived or await self._wait(deadline):
                messages += self._take()
            if self._broken:
                await self._repair(self._broken)
        return messages

    async def _between(self, end: Mark, subjects: Sequence[str], calm: Calm) -> tuple[list[Received], int] | None:
        """Return what is kept of some subjects behind the position and up to a later one, and how much was read.

        None: it is not clear. What is not kept goes at once, or a flood would take all memory.
        """
        client, after, messages, count = self._client, self.position, list[Received](), 0
        async with Reader(client, self.stream, subjects, after=after, timeout_seconds=self._timeout) as reader:
            more = await reader.read(timeout_seconds=0)
            while True:
                wanted = [message for message in more if message.sequence <= end.sequence]
                messages += calm(wanted)
                count += len(wanted)
                if not reader.pending or reader.position >= end.sequence:
                    return messages, count
                if not (more := await reader.read(timeout_seconds=self._timeout)):
                    return None

    def _verification_due(self) -> bool:
        """Tell whether it is time to see that the consumer is as the lease made it, and take that as done."""
        now = asyncio.get_running_loop().time()
        if due := now - self._verified > _VERIFY_SECONDS:
            self._verified = now
        return due
