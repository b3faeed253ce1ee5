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
from typing import Any, NamedTuple, Self

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus import api
from bus.reading import tap
from bus.reading.lease import Lease, Lost
from bus.reading.tap import Sink, Tap

log = logging.getLogger(__name__)

_EXPIRES_SECONDS = 30.0
_HEARTBEAT_SECONDS = 2.0
_HEARTBEATS = 2.5  # in an expiry, and missed before the consumer is given up
_NUDGES = 2  # of a lease's requests, made anew before its consumer is set back
_RETRY_SECONDS = 0.5
_GRACE_SECONDS = 0.1
_DELIVERY = b"$JS.ACK."
_HOLE = "hole"
_IDLE_CONSUMER_SECONDS = 300

REPAIRED = Counter("spazio_pull_repaired_total", "times that a consumer was made anew to close a hole", ["stream"])


class Renewed(nats.errors.Error):
    """The stream is not the one any more that the position is of: it was deleted and made anew."""


class Received(NamedTuple):
    """One stored message: the subject it is stored under, its stream sequence, its payload."""

    subject: str
    sequence: int
    data: bytes


def delivery(reply: bytes) -> tuple[int, int, int]:
    """Return (place in the stream, place in what the consumer sent, messages behind it) from a delivery's reply.

    >>> delivery(b"$JS.ACK.S.c.1.17.4.1700000000.9"), delivery(b"$JS.ACK.dom.hash.S.c.1.17.4.1700000000.9.x")
    ((17, 4, 9), (17, 4, 9))
    """
    tokens = reply.split(b".")
    start = 5 if len(tokens) == 9 else 7
    return int(tokens[start]), int(tokens[start + 1]), int(tokens[start + 3])


class Reader:
    """An ordered reader of some subjects of one stream.

    Use as an async context manager.

    Attributes:
        stream: Name of the stream.
        position: Sequence of the last message handed out.
        pending: Messages that were behind it when it was sent; -1: not known yet, since the consumer is not made.
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
        self._client, self.stream, self._subjects = client, stream, list(subjects)
        self.position, self._newest, self._batch = after, newest, batch
        self._timeout, self._lease, self._bound = timeout_seconds, lease, bound
        self._born = ""
        self._expires, self._heartbeat = _EXPIRES_SECONDS, _HEARTBEAT_SECONDS
        if lease is not None:
            self._expires, self._heartbeat = lease.expires_seconds, lease.expires_seconds / _HEARTBEATS
        self._tap: Tap | None = None
        self._consumer = ""
        self._arrived: list[tuple[bytes, bytes, bytes, bytes | None]] = []
        self._wake = asyncio.Event()
        self._filled = asyncio.Event()
        self._wanted = 0
        self._counted = 0
        self._heard = self._asked = 0.0
        self._keeping: asyncio.Task[None] | None = None
        self._repaired = -1
        self._nudges = self._round = self._reconnects = 0
        self.pending = -1 if lease is None else 0

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
            try:
                await self._api(f"CONSUMER.DELETE.{self.stream}.{consumer}", {})
            except (nats.errors.Error, TimeoutError):
                log.debug("pull.consumer_left", extra={"consumer": consumer})

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
            await self._ask()
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
        about = await self._api(f"CONSUMER.INFO.{self.stream}.{consumer}", {})
        sent: int = about["delivered"]["consumer_seq"]
        return consumer == self._consumer and not about["num_pending"] and sent <= self._counted

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
        loop, silence = asyncio.get_running_loop(), _HEARTBEATS * self._heartbeat
        limit = self._heard + silence
        try:
            async with asyncio.timeout_at(limit if deadline is None else min(limit, deadline)):
                await self._wake.wait()
        except TimeoutError:
            if loop.time() >= limit:
                # A process that was stopped has not read yet what was sent to it meanwhile.
                await asyncio.sleep(_GRACE_SECONDS)
                if loop.time() >= self._heard + silence:
                    await self._nudge()
            return False
        self._wake.clear()
        return True

    async def _nudge(self) -> None:
        """Have another consumer, but a lease asks again first.

        It waits for a second only, and a server that is too busy to answer in time would be busier still with
        consumers that are set back. One that has forgotten the consumer answers that nobody is there.
        """
        if self._lease is None or self._nudges == _NUDGES:
            await self._repair("no heartbeat")
            return
        self._nudges += 1
        self._wanted, self._round = 0, self._round + 1
        self._heard = asyncio.get_running_loop().time()

    async def _take(self) -> list[Received]:
        batch = self._arrived.copy()
        self._arrived.clear()
        messages: list[Received] = []
        for subject, reply, data, headers in batch:
            # A stored message may carry any header; only what the server makes itself has no such reply.
            if not reply.startswith(_DELIVERY):
                if not await self._status(subject, tap.fields(headers)):
                    break
                continue
            if self._lease is not None:
                self._lease.check(headers)
            sequence, count, self.pending = delivery(reply)
            # A standby's reset that comes late, before the first message, shows in the place alone.
            if count != self._counted + 1 or sequence <= self.position:
                await self._repair(_HOLE)
                break
            self._counted = count
            self._wanted -= 1
            self.position = sequence
            messages.append(Received(subject.decode(errors="replace"), sequence, data))
        return messages

    async def _status(self, subject: bytes, headers: dict[str, str]) -> bool:
        """Act on a status message; False: the consumer was made anew."""
        status, text = headers["Status"], headers["Description"]
        if status == "100":
            if int(headers.get("Nats-Last-Consumer", 0)) <= self._counted:
                return True
            await self._repair(_HOLE)
            return False
        if status == "423":
            raise Lost(f"{self._consumer}: {text}")
        if status in ("404", "408") or (status == "409" and "Consumer Deleted" not in text):
            # What was asked for before we asked anew is not counted any more.
            if subject.endswith(b".%d" % self._round):
                self._wanted = max(0, self._wanted - int(headers.get("Nats-Pending-Messages", self._wanted)))
            return True
        await self._repair(f"{status} {text}")
        return False

    async def _repair(self, reason: str) -> None:
        REPAIRED.labels(self.stream).inc()
        if self._repaired == self.position:
            await asyncio.sleep(_RETRY_SECONDS)  # the last repair has not helped
        self._repaired = self.position
        log.info("pull.repaired", extra={"stream": self.stream, "reason": reason, "position": self.position})
        await self.close()
        if self._lease is not None and reason == _HOLE:
            # Where there are leaf servers a request outlives its inbox, and takes what is sent next.
            await asyncio.sleep(
                max(0.0, self._asked + self._expires - asyncio.get_running_loop().time()) + _GRACE_SECONDS
            )

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
            self._consumer = await self._created()
        else:
            self._consumer = await self._lease.open(self.position)
        self._counted = self._wanted = self._nudges = 0
        self._wake.clear()
        self._heard = self._asked = asyncio.get_running_loop().time()
        self._tap = await tap.listen(self._client, self._collector(), below=".*")
        if self._lease is not None:
            self._keeping = asyncio.create_task(self._keep())

    async def _created(self) -> str:
        born = (await self._api(f"STREAM.INFO.{self.stream}", {}))["created"]
        if self._born not in ("", born):
            if self._bound:
                raise Renewed(f"stream {self.stream} was made anew")
            log.info("pull.renewed", extra={"stream": self.stream})
            self.position = 0
        self._born = born
        config: dict[str, Any] = {
            "filter_subjects": self._subjects,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _IDLE_CONSUMER_SECONDS * 10**9,
            "mem_storage": True,
        }
        if self._newest and not self.position:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self.position + 1}
        answer = await self._api(f"CONSUMER.CREATE.{self.stream}", {"stream_name": self.stream, "config": config})
        self.pending = int(answer.get("num_pending", 0))
        name: str = answer["name"]
        return name

    def _collector(self) -> Sink:
        loop = asyncio.get_running_loop()
        enough = self._batch // 2
        arrived = self._arrived = []  # what the one before still gets is of a consumer that was given up

        def collect(subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
            if arrived is self._arrived:
                arrived.append((subject, reply, data, headers))
                self._heard, self._nudges = loop.time(), 0
                self._wake.set()
                if len(arrived) >= enough:
                    self._filled.set()

        return collect

    async def _ask(self) -> None:
        if self._tap is not None and self._wanted <= self._batch // 2:
            await self._request(self._tap, self._batch)

    async def _keep(self) -> None:
        """Use the lease while nobody reads, as in a long fold or while rows wait to be stored."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._expires / 2)
            if self._tap is not None and loop.time() - self._asked > self._expires:
                await self._request(self._tap, 1)

    async def _request(self, listening: Tap, batch: int) -> None:
        request = {
            "batch": batch,
            "expires": round(self._expires * 10**9),
            "idle_heartbeat": round(self._heartbeat * 10**9),
            **(self._lease.terms if self._lease else {}),
        }
        self._wanted += batch
        self._asked = asyncio.get_running_loop().time()
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}",
            json.dumps(request).encode(),
            reply=f"{listening.inbox[:-1]}{self._round}",
        )

    async def _api(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        return await api.request(self._client, verb, request, self._timeout)
