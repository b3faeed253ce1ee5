"""A producer's queue of messages: each is sent, in order, until the stream has stored it.

Publishing without acknowledgements loses messages, without any error, when the server dies. Here each message waits for
its acknowledgement and is sent again with the same id, by which the stream stores it once. What no server takes is
dropped and counted. If the stream calls a message a duplicate that was never sent, somebody else has used its id: it is
sent again under another one, and the alarm is raised.

Each outbox sends for itself. After the server was away, what measures of the same second wait in two of them would be
stored minutes apart. So an outbox may follow another one, second by second.
"""

import asyncio
import contextlib
import itertools
import logging
import sys
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError, NoStreamResponseError
from prometheus_client import Counter, Gauge

from bus.api import FULL
from bus.health import UNSTORED, Health
from bus.publishing.bounds import Bounds, Excess, excess
from bus.publishing.identity import Claims, Sealer
from bus.publishing.storage_check import StorageCheck, StorageLost

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
_CHECK_SECONDS = 1.0
_AHEAD_SECONDS = 1  # of the outbox that is followed: while the server answers within it, no message waits
_TOO_LARGE = 10054
_SHOWN = 200
_FULL_REASON = "a bucket is full and takes no new key: remove what is not needed, or raise nats bucket_max_bytes"

PUBLISHED = Counter("spazio_published_total", "messages that the stream acknowledged")
DROPPED = Counter("spazio_publish_dropped_total", "messages dropped, by reason", ["reason"])
WAITING = Gauge("spazio_publish_waiting", "messages that wait for the server", ["kind"])


class _Item(NamedTuple):
    subject: str
    payload: bytes
    identity: str
    headers: Mapping[str, str]
    second: int


class Outbox:
    """A bounded queue in front of a stream; a full queue drops its oldest message."""

    def __init__(
        self,
        client: Client,
        health: Health,
        *,
        limit: int,
        timeout_seconds: float,
        kind: str,
        in_flight: int = 1,
        sealer: Sealer | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """Make an empty queue.

        Args:
            client: Connection.
            health: Degraded while messages cannot be stored.
            limit: Messages kept at most.
            timeout_seconds: Time limit for one acknowledgement.
            kind: Kind of its messages, for health and metrics.
            in_flight: Messages sent before the first is acknowledged. More than one handles bursts, but if the server
                refuses one message and stores a later one, the order changes.
            sealer: Makes message ids; None: one whose key is that of this process.
            bounds: Counts and buries what no server takes; None: the outbox counts and logs it.
        """
        self._sealer, self._bounds = sealer or Sealer(), bounds
        self._storage: StorageCheck | None = None
        self._claims = Claims(health, self._sealer)
        self._tried: set[str] = set()  # ids under which the stream may have a message already
        self._attempts: dict[str, int] = {}  # by identity, where an id was claimed by somebody else
        self._js = client.jetstream(timeout=timeout_seconds)
        self._client, self._health = client, health
        self._items: deque[_Item] = deque()
        self._limit, self._in_flight = limit, in_flight
        self._limit_bytes, self._bytes = sys.maxsize, 0
        self._leader: Outbox | None = None
        self._part, self._waiting = f"publishing {kind}", WAITING.labels(kind)
        self._full_part = f"bucket of {kind}"
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()  # another message is the first
        self._idle = asyncio.Event()
        self._idle.set()

    def guard(self, storage: StorageCheck) -> None:
        """Have this asked after each reconnect, before anything else is sent, and each minute."""
        self._storage = storage

    def follow(self, leader: "Outbox") -> None:
        """Send no message more than a second ahead of the oldest that another outbox has."""
        self._leader = leader

    def restrict(self, limit_bytes: int) -> None:
        """Keep at most so many bytes of payloads, unless a single message has more."""
        self._limit_bytes = limit_bytes

    def put(
        self,
        subject: str,
        payload: bytes,
        identity: str,
        headers: Mapping[str, str] | None = None,
        *,
        second: int = 0,
    ) -> None:
        """Queue a message. Call from the event loop's thread.

        Args:
            subject: Its subject.
            payload: Its content.
            identity: The same message always has the same.
            headers: Its headers.
            second: When it was measured, on the clock of the outbox that this one follows.
        """
        while self._items and (len(self._items) >= self._limit or self._bytes + len(payload) > self._limit_bytes):
            self._forget(self._items[0])
            self._remove_first()
            DROPPED.labels("full").inc()
        self._items.append(_Item(subject, payload, identity, headers or {}, second))
        self._bytes += len(payload)
        self._waiting.set(len(self._items))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Send queued messages until cancelled.

        Raises:
            StorageLost: The server came back without what it had acknowledged; what is queued is not sent.
        """
        while True:
            while self._items:
                first = self._items[0]
                async with self._health.within(self._part, _PATIENCE_SECONDS, UNSTORED):
                    while self._items and self._items[0] is first:
                        await self._send_some()
                self._waiting.set(len(self._items))
            self._idle.set()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._storage is None else _CHECK_SECONDS):
                    await self._wake.wait()
            await self.check()

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until all messages are stored; False: the time ran out."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    @property
    def oldest(self) -> int | None:
        """The second of the first message; None: there is no message."""
        return self._items[0].second if self._items else None

    async def moved(self) -> None:
        """Wait until another message is the first, or there is none."""
        self._moved.clear()
        await self._moved.wait()

    async def check(self) -> bool:
        """Return whether the server has kept what it acknowledged; False: it does not answer.

        Raises:
            StorageLost: It has not.
        """
        if self._storage is not None:
            try:
                await self._storage.check()
            except StorageLost:
                raise
            except (nats.errors.Error, TimeoutError):
                return False
        return True

    async def _send_some(self) -> None:
        """Send the first messages, and remove those that are stored, up to the first that is not.

        Later messages are sent again after that one, in the same order; the stream recognizes them by their ids. What
        is dropped is not tried again: it would be counted once more each time.
        """
        while self._leader is not None and not self._is_due(self._items[0]):
            await self._leader.moved()
        if not await self.check():
            await asyncio.sleep(_RETRY_SECONDS)
            return
        items = list(itertools.takewhile(self._is_due, itertools.islice(self._items, self._in_flight)))
        for item, stored in zip(items, await asyncio.gather(*map(self._send, items)), strict=True):
            if not stored:
                break
            if self._items and self._items[0] is item:  # else a full queue has dropped it, or it was withheld
                self._remove_first()

    def _is_due(self, item: _Item) -> bool:
        oldest = None if self._leader is None else self._leader.oldest
        return oldest is None or item.second <= oldest + _AHEAD_SECONDS

    def _remove_first(self) -> None:
        self._bytes -= len(self._items.popleft().payload)
        self._moved.set()

    async def _send(self, item: _Item) -> bool:
        """Try once; True: the message is stored or dropped."""
        if not self._client.is_connected:
            await asyncio.sleep(_RETRY_SECONDS)
            return False
        if (limit := excess(item.subject, len(item.payload), self._client.max_payload)) is not None:
            return await self._drop(item, limit)
        sealed = self._sealed(item)
        first = sealed not in self._tried
        self._tried.add(sealed)
        try:
            stored = await self._js.publish(item.subject, item.payload, headers={**item.headers, "Nats-Msg-Id": sealed})
        except (nats.errors.Error, NoStreamResponseError, TimeoutError) as error:
            if (limit := _unstorable(item, error)) is not None:
                return await self._drop(item, limit)
            await self._back_off(error)
            return False
        self._tried.discard(sealed)
        if first and stored.duplicate and self._claims.claimed(item.identity, item.subject):
            self._attempts[item.identity] = self._attempts.get(item.identity, 0) + 1
            return False
        if self._storage is not None:
            self._storage.acknowledged(stored.stream, stored.seq, sealed)
        self._forget(item)
        self._claims.sent(item.identity)
        if item.subject.startswith("$KV."):
            self._health.recover(self._full_part)
        PUBLISHED.inc()
        return True

    def _sealed(self, item: _Item) -> str:
        return self._sealer.seal(item.identity.encode(), self._attempts.get(item.identity, 0))

    def _forget(self, item: _Item) -> None:
        self._tried.discard(self._sealed(item))
        self._attempts.pop(item.identity, None)

    async def _drop(self, item: _Item, limit: Excess) -> bool:
        """Remove a message, and count and log it, or have it buried if that is possible; return True."""
        self._forget(item)
        with contextlib.suppress(ValueError):  # a full queue has dropped it meanwhile
            self._items.remove(item)
            self._bytes -= len(item.payload)
            self._moved.set()
        if self._bounds is not None and limit.cause != "bucket_full":
            await self._bounds.withhold(item.subject, item.payload, limit)
            return True
        DROPPED.labels(limit.cause).inc()
        log.error(
            "message.dropped",
            extra={"subject": item.subject[:_SHOWN], "reason": limit.reason, "bytes": len(item.payload)},
        )
        if limit.cause == "bucket_full":
            self._health.degrade(self._full_part, limit.reason)
        return True

    async def _back_off(self, error: Exception) -> None:
        log.debug("publish.retried", extra={"reason": repr(error)})
        await asyncio.sleep(_RETRY_SECONDS)


def _unstorable(item: _Item, error: Exception) -> Excess | None:
    """Return why the stream will never store a message, given its error; None: it may later."""
    if not isinstance(error, APIError):
        return None
    if error.err_code == _TOO_LARGE:
        return Excess("too_large", "the stream takes no message of this size")
    if FULL in (error.description or "") and item.subject.startswith("$KV."):
        return Excess("bucket_full", _FULL_REASON)
    return None
