"""Reads a stream in order, without gaps, fast.

The client's `fetch` and `async for` create at least one task for every message. This reader requests batches on a
tapped inbox and collects arrivals in a list, which is many times as fast. It uses a consumer without acknowledgements,
since the reader's own position decides. The reader replaces the consumer by one after that position (a `LeasedReader`
resets the consumer of its lease) in four cases: the consumer's count jumps; the client has reconnected, because
messages sent on the old connection may be lost; heartbeats stop; or the server has lost the consumer.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Sequence
from typing import Self

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus import api
from bus.reading import setback, tap
from bus.reading.consumer import Consumers, StreamRecreated
from bus.reading.lease import Lease, Lost
from bus.reading.progress import HOLE, Arrival, Progress, Received
from bus.reading.setback import Mark, SetBack
from bus.reading.tap import Sink, Tap

log = logging.getLogger(__name__)

_EXPIRES_SECONDS = 30.0
_HEARTBEAT_SECONDS = 2.0
_RETRY_SECONDS = 0.5
_GRACE_SECONDS = 0.1

REPAIRED = Counter("spazio_pull_repaired_total", "times that a consumer was replaced to close a gap", ["stream"])


class Reader:
    """An ordered reader of some subjects of one stream.

    Use as an async context manager.

    Attributes:
        stream: Name of the stream.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        subjects: Sequence[str],
        *,
        after: int | Mark = 0,
        newest: bool = False,
        batch: int = 500,
        timeout_seconds: float = 5,
        bound: bool = False,
    ) -> None:
        """Describe the reader; nothing is sent before the first `read`.

        Args:
            client: Connection.
            stream: Stream to read.
            subjects: Subject filters, as the stream stores them.
            after: Read from the sequence behind this one. With the time of that message the reader also notices that
                the server came back with less when other messages have taken its place.
            newest: Begin with the last message of each subject if `after` is 0.
            batch: Messages requested at once.
            timeout_seconds: Time limit for each request to the server.
            bound: The caller stores the position, which has no meaning in a recreated stream: `read` then raises
                `StreamRecreated` instead of beginning at the new stream's start, and `SetBack` instead of beginning
                behind what the server has kept.
        """
        self._client, self.stream, self._batch = client, stream, batch
        self._timeout = timeout_seconds
        self._lease: Lease | None = None
        self._consumers = Consumers(
            client, stream, subjects, newest=newest, bound=bound, timeout_seconds=timeout_seconds
        )
        self._expires, self._heartbeat = _EXPIRES_SECONDS, _HEARTBEAT_SECONDS
        mark = after if isinstance(after, Mark) else Mark(after)
        self._progress = Progress(mark, pending=-1, batch=batch, heartbeat_seconds=self._heartbeat, nudges=0)
        self._tap: Tap | None = None
        self._consumer = ""
        self._arrived: list[Arrival] = []
        self._wake = asyncio.Event()
        self._filled = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._repaired, self._before, self._broken = -1, 0, ""
        self._reconnects = 0

    @property
    def position(self) -> int:
        """Sequence of the last message returned."""
        return self._progress.position

    @property
    def mark(self) -> Mark:
        """The last message returned: its sequence, and when the server stored it."""
        return self._progress.mark

    @property
    def pending(self) -> int:
        """Number of messages behind it when it was sent; -1: not known yet, since there is no consumer."""
        return self._progress.pending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Delete the reader's own consumer; if that fails, the server deletes it after a while."""
        consumer, self._consumer, self._broken = self._consumer, "", ""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        if self._tap is not None:
            listening, self._tap = self._tap, None
            await listening.close()
        if consumer and self._lease is None and self._client.is_connected:
            await self._consumers.delete(consumer)

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> list[Received]:
        """Wait for messages and return all that have arrived, in stream order; a cancelled call loses none.

        Args:
            linger_seconds: Time to collect more messages after the first.
            timeout_seconds: Time without a message after which to return an empty list; None: wait for ever.

        Raises:
            Lost: Another replica has the lease.
            StreamRecreated: The stream was recreated, and the reader is bound to the one before.
            SetBack: The server came back with less than was read, and the reader is bound or has a lease.
        """
        deadline = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
        while True:
            if self._broken:
                await self._repair(self._broken)
            stale = self._tap is not None and self._client.stats["reconnects"] != self._reconnects
            if stale and (messages := await self._renew()):
                return messages
            if self._tap is None:
                await self._open()
            if self._tap is not None and self._progress.due:
                await self._request(self._tap, self._batch)
            if self._arrived or await self._wait(deadline):
                if linger_seconds and self._arrived:
                    await self._collect(linger_seconds)
                if messages := self._take():
                    return messages
            if deadline is not None and asyncio.get_running_loop().time() >= deadline:
                return []

    async def whole(self) -> bool:
        """Tell whether all messages stored at the time of the call have been returned.

        Raises:
            nats.errors.Error, TimeoutError: The server did not answer.
        """
        if self._broken or not (consumer := self._consumer):
            return False
        info = await api.request(self._client, f"CONSUMER.INFO.{self.stream}.{consumer}", {}, self._timeout)
        sent: int = info["delivered"]["consumer_seq"]
        return consumer == self._consumer and not info["num_pending"] and self._progress.has_all(sent)

    async def _renew(self) -> list[Received]:
        """Return what had arrived before the connection broke, which the server may have lost since; else repair."""
        messages = self._take()
        if not messages:
            await self._repair(self._broken or "reconnected")
        return messages

    async def _collect(self, seconds: float) -> None:
        """Wait for more messages, until half of the requested number has arrived."""
        if len(self._arrived) >= self._batch // 2:
            return
        self._filled.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._filled.wait()
        except TimeoutError:
            return

    async def _wait(self, deadline: float | None) -> bool:
        """Wait for an arrival, a missed heartbeat or the deadline; True: something has arrived."""
        loop, limit = asyncio.get_running_loop(), self._progress.silent_at
        try:
            async with asyncio.timeout_at(limit if deadline is None else min(limit, deadline)):
                await self._wake.wait()
        except TimeoutError:
            if loop.time() >= limit:
                # A process that was paused has not yet read the data that arrived meanwhile.
                await asyncio.sleep(_GRACE_SECONDS)
                if loop.time() >= self._progress.silent_at:
                    await self._nudge()
            return False
        self._wake.clear()
        return True

    async def _nudge(self) -> None:
        """Replace the consumer; with a lease, first repeat the request.

        A lease waits only for about a second, and resetting consumers would load a server that is already too busy to
        answer in time. If the server has lost the consumer, it answers the request with "no responders".
        """
        if not self._progress.nudge(asyncio.get_running_loop().time()):
            await self._repair("no heartbeat")

    def _take(self) -> list[Received]:
        """Return what has arrived, and note why the consumer is to be replaced; the next `read` does that."""
        arrivals = self._arrived.copy()
        self._arrived.clear()
        accepted = self._progress.accept(arrivals, None if self._lease is None else self._lease.check)
        if accepted.lost:
            raise Lost(f"{self._consumer}: {accepted.lost}")
        self._broken = self._broken or accepted.broken
        return accepted.messages

    async def _repair(self, reason: str) -> None:
        REPAIRED.labels(self.stream).inc()
        if self._repaired == self.position:
            await asyncio.sleep(_RETRY_SECONDS)  # the last repair has not helped
        self._repaired = self.position
        log.info("reader.repaired", extra={"stream": self.stream, "reason": reason, "position": self.position})
        await self.close()
        if self._lease is not None and reason == HOLE:
            # With leaf servers a request outlives its inbox and consumes the next message.
            left = self._progress.asked_at + self._expires - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, left) + _GRACE_SECONDS)
            await self._lease.missed()

    async def _open(self) -> None:
        """Get a consumer after the position and subscribe; wait while the server or the stream is unavailable."""
        logged = False
        while self._tap is None:
            try:
                await self._subscribe()
            except (Lost, StreamRecreated, SetBack):
                raise
            except (nats.errors.Error, TimeoutError, OSError) as error:
                if not logged:
                    log.warning("reader.open_failed", extra={"stream": self.stream, "reason": str(error)})
                    logged = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def _subscribe(self) -> None:
        self._reconnects = self._client.stats["reconnects"]
        if self._lease is None:
            created = await self._consumers.create(self.mark)
            self._consumer, (self._progress.position, self._progress.stored_us), self._progress.pending = created
        else:
            if self.mark.stored_us:
                await setback.check(self._client, self.stream, self.mark, self._timeout)
            self._consumer, self._before, self._progress.pending = await self._lease.open(self.position)
        self._wake.clear()
        self._progress.open(asyncio.get_running_loop().time())
        self._tap = await tap.listen(self._client, self._collector(), below=".*")
        if self._lease is not None:
            self._keeping = asyncio.create_task(self._keep())

    def _collector(self) -> Sink:
        loop = asyncio.get_running_loop()
        enough = self._batch // 2
        arrived = self._arrived = []  # the earlier list belongs to a consumer that was given up

        def collect(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            if arrived is self._arrived:
                arrived.append((subject, reply, data, headers))
                self._progress.hear(loop.time())
                self._wake.set()
                if len(arrived) >= enough:
                    self._filled.set()

        return collect

    async def _keep(self) -> None:
        """Renew the lease while `read` is not called, as in a long fold or while rows wait to be stored."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._expires / 2)
            if self._tap is not None and loop.time() - self._progress.asked_at > self._expires:
                with contextlib.suppress(nats.errors.Error, OSError):  # the next may get through
                    await self._request(self._tap, 1)

    async def _request(self, listening: Tap, batch: int) -> None:
        request = {
            "batch": batch,
            "expires": api.nanoseconds(self._expires),
            "idle_heartbeat": api.nanoseconds(self._heartbeat),
            **(self._lease.terms if self._lease else {}),
        }
        self._progress.ask(batch, asyncio.get_running_loop().time())
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}",
            json.dumps(request).encode(),
            reply=f"{listening.inbox[:-1]}{self._progress.round}",
        )
