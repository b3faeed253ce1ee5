"""Reading a stream in order, without a hole, fast.

The client's `fetch` and `async for` make a task or more for every message. This reader asks the server for batches
on a tapped inbox and collects what arrives in a list, which is many times as fast. It uses a consumer without
acknowledgements: the reader's own position is the truth, so the consumer is made anew behind that position, or set
back to it where it is held by a lease, whenever the consumer's count jumps, whenever the connection was made anew
(what was sent into the old one may be lost, and be the last for long), whenever heartbeats stop, and whenever the
server has forgotten the consumer.
"""

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Self

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus import api
from bus.reading import progress, tap
from bus.reading.consumer import Consumers, Renewed
from bus.reading.lease import Lease, Lost
from bus.reading.progress import HEARTBEATS, HOLE, Arrival, Progress, Received
from bus.reading.tap import Sink, Tap

log = logging.getLogger(__name__)

_EXPIRES_SECONDS = 30.0
_HEARTBEAT_SECONDS = 2.0
_RETRY_SECONDS = 0.5
_GRACE_SECONDS = 0.1

REPAIRED = Counter("spazio_pull_repaired_total", "times that a consumer was made anew to close a hole", ["stream"])


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
        after: int = 0,
        newest: bool = False,
        batch: int = 500,
        timeout_seconds: float = 5,
        lease: Lease | None = None,
        bound: bool = False,
    ) -> None:
        """Describe the reader; nothing is sent before the first `read`.

        Args:
            client: Connection.
            stream: Stream to read.
            subjects: Subject filters, as the stream stores them.
            after: Read from the sequence behind this one.
            newest: Begin with the last message of each subject instead; `after` then counts from the second start on.
            batch: Messages asked for at once.
            timeout_seconds: For requests to the server.
            lease: Held; read its consumer, with its subjects, instead of one of our own. `read` raises `Lost` once
                another has it.
            bound: The caller keeps the position, which means nothing in a stream that was made anew: `read` raises
                `Renewed` then, instead of beginning at the new stream's start.
        """
        self._client, self.stream, self._batch = client, stream, batch
        self._timeout, self._lease = timeout_seconds, lease
        self._consumers = Consumers(
            client, stream, subjects, newest=newest, bound=bound, timeout_seconds=timeout_seconds
        )
        self._expires, self._heartbeat = _EXPIRES_SECONDS, _HEARTBEAT_SECONDS
        if lease is not None:
            self._expires, self._heartbeat = lease.expires_seconds, lease.expires_seconds / HEARTBEATS
        self._progress = Progress(
            after,
            pending=-1 if lease is None else 0,
            batch=batch,
            heartbeat_seconds=self._heartbeat,
            nudges=0 if lease is None else progress.NUDGES,
        )
        self._tap: Tap | None = None
        self._consumer = ""
        self._arrived: list[Arrival] = []
        self._wake = asyncio.Event()
        self._filled = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._repaired = -1
        self._reconnects = 0

    @property
    def position(self) -> int:
        """Sequence of the last message handed out."""
        return self._progress.position

    @property
    def pending(self) -> int:
        """Messages that were behind it when it was sent; -1: not known yet, since the consumer is not made."""
        return self._progress.pending

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Take a consumer of our own back; the server forgets it by itself if that fails."""
        consumer, self._consumer = self._consumer, ""
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        if self._tap is not None:
            listening, self._tap = self._tap, None
            await listening.close()
        if consumer and self._lease is None and self._client.is_connected:
            await self._consumers.delete(consumer)

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> list[Received]:
        """Wait for messages and return all that have arrived, in stream order.

        Args:
            linger_seconds: How long to go on collecting after the first message.
            timeout_seconds: Return an empty list after so long without a message; None waits for ever.

        Raises:
            Lost: Another replica has the lease.
            Renewed: The stream was made anew, and the reader is bound to the one before.
        """
        deadline = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
        while True:
            if self._tap is not None and self._client.stats["reconnects"] != self._reconnects:
                await self._repair("reconnected")
            if self._tap is None:
                await self._open()
            if self._tap is not None and self._progress.due:
                await self._request(self._tap, self._batch)
            if self._arrived or await self._wait(deadline):
                if linger_seconds and self._arrived:
                    await self._collect(linger_seconds)
                messages = await self._take()
                if messages:
                    return messages
            if deadline is not None and asyncio.get_running_loop().time() >= deadline:
                return []

    async def whole(self) -> bool:
        """Tell whether all that was stored when this was asked has been handed out.

        Raises:
            nats.errors.Error, TimeoutError: The server did not say.
        """
        if not (consumer := self._consumer):
            return False
        about = await api.request(self._client, f"CONSUMER.INFO.{self.stream}.{consumer}", {}, self._timeout)
        sent: int = about["delivered"]["consumer_seq"]
        return consumer == self._consumer and not about["num_pending"] and self._progress.has_all(sent)

    async def _collect(self, seconds: float) -> None:
        """Wait for more, until half of what was asked for is there."""
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
                # A process that was stopped has not read yet what was sent to it meanwhile.
                await asyncio.sleep(_GRACE_SECONDS)
                if loop.time() >= self._progress.silent_at:
                    await self._nudge()
            return False
        self._wake.clear()
        return True

    async def _nudge(self) -> None:
        """Have another consumer, but a lease asks again first.

        It waits for a second only, and a server that is too busy to answer in time would be busier still with
        consumers that are set back. One that has forgotten the consumer answers that nobody is there.
        """
        if not self._progress.nudge(asyncio.get_running_loop().time()):
            await self._repair("no heartbeat")

    async def _take(self) -> list[Received]:
        arrivals = self._arrived.copy()
        self._arrived.clear()
        accepted = self._progress.accept(arrivals, None if self._lease is None else self._lease.check)
        if accepted.lost:
            raise Lost(f"{self._consumer}: {accepted.lost}")
        if accepted.broken:
            await self._repair(accepted.broken)
        return accepted.messages

    async def _repair(self, reason: str) -> None:
        REPAIRED.labels(self.stream).inc()
        if self._repaired == self.position:
            await asyncio.sleep(_RETRY_SECONDS)  # the last repair has not helped
        self._repaired = self.position
        log.info("pull.repaired", extra={"stream": self.stream, "reason": reason, "position": self.position})
        await self.close()
        if self._lease is not None and reason == HOLE:
            # Where there are leaf servers a request outlives its inbox, and takes what is sent next.
            left = self._progress.asked_at + self._expires - asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, left) + _GRACE_SECONDS)

    async def _open(self) -> None:
        """Have a consumer behind the position and listen; waits while the server or the stream is away."""
        said = False
        while self._tap is None:
            try:
                await self._make()
            except (Lost, Renewed):
                raise
            except (nats.errors.Error, TimeoutError, OSError) as error:
                if not said:
                    log.warning("pull.waiting", extra={"stream": self.stream, "reason": str(error)})
                    said = True
                await asyncio.sleep(_RETRY_SECONDS)

    async def _make(self) -> None:
        self._reconnects = self._client.stats["reconnects"]
        if self._lease is None:
            created = await self._consumers.create(self.position)
            self._consumer, self._progress.position, self._progress.pending = created
        else:
            self._consumer = await self._lease.open(self.position)
        self._wake.clear()
        self._progress.open(asyncio.get_running_loop().time())
        self._tap = await tap.listen(self._client, self._collector(), below=".*")
        if self._lease is not None:
            self._keeping = asyncio.create_task(self._keep())

    def _collector(self) -> Sink:
        loop = asyncio.get_running_loop()
        enough = self._batch // 2
        arrived = self._arrived = []  # what the one before still gets is of a consumer that was given up

        def collect(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            if arrived is self._arrived:
                arrived.append((subject, reply, data, headers))
                self._progress.hear(loop.time())
                self._wake.set()
                if len(arrived) >= enough:
                    self._filled.set()

        return collect

    async def _keep(self) -> None:
        """Use the lease while nobody reads, as in a long fold or while rows wait to be stored."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._expires / 2)
            if self._tap is not None and loop.time() - self._progress.asked_at > self._expires:
                await self._request(self._tap, 1)

    async def _request(self, listening: Tap, batch: int) -> None:
        request = {
            "batch": batch,
            "expires": round(self._expires * 10**9),
            "idle_heartbeat": round(self._heartbeat * 10**9),
            **(self._lease.terms if self._lease else {}),
        }
        self._progress.ask(batch, asyncio.get_running_loop().time())
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}",
            json.dumps(request).encode(),
            reply=f"{listening.inbox[:-1]}{self._progress.round}",
        )
