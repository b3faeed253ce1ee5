"""What a producer has to say while nobody listens: the newest messages, in order, each sent until it is stored.

Publishing and hoping loses messages when a server dies without any error. Here each message waits for its
acknowledgement and is sent again with the same id, which the stream uses to store it once.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError, NoStreamResponseError
from prometheus_client import Counter, Gauge

from bus.health import UNSTORED, Health

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_PATIENCE_SECONDS = 5.0
_TOO_LARGE = 10054

PUBLISHED = Counter("spazio_published_total", "messages that the stream acknowledged")
DROPPED = Counter("spazio_publish_dropped_total", "messages given up, by reason", ["reason"])
WAITING = Gauge("spazio_publish_waiting", "messages that wait for the server", ["kind"])


class _Item(NamedTuple):
    subject: str
    payload: bytes
    identity: str
    headers: Mapping[str, str]


class Outbox:
    """A bounded queue in front of a stream; the oldest message makes room for the newest."""

    def __init__(
        self, client: Client, health: Health, *, limit: int, timeout_seconds: float, kind: str, in_flight: int = 1
    ) -> None:
        """Make an empty queue.

        Args:
            client: Connection.
            health: Told when messages cannot be stored.
            limit: Messages kept.
            timeout_seconds: For one acknowledgement.
            kind: What it holds, for health and metrics.
            in_flight: Messages sent before the first is acknowledged. More than one keeps up with bursts, but where
                the server takes one and refuses one before it, they are stored in the wrong order.
        """
        self._js = client.jetstream(timeout=timeout_seconds)
        self._client, self._health = client, health
        self._items: deque[_Item] = deque()
        self._limit, self._in_flight = limit, in_flight
        self._part, self._waiting = f"publishing {kind}", WAITING.labels(kind)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, subject: str, payload: bytes, identity: str, headers: Mapping[str, str] | None = None) -> None:
        """Queue a message; `identity` is the same for the same message, always. Call from the event loop's thread."""
        if len(self._items) >= self._limit:
            self._items.popleft()
            DROPPED.labels("full").inc()
        self._items.append(_Item(subject, payload, identity, headers or {}))
        self._waiting.set(len(self._items))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Send what is queued, for ever."""
        while True:
            while self._items:
                first = self._items[0]
                async with self._health.within(self._part, _PATIENCE_SECONDS, UNSTORED):
                    while self._items and self._items[0] is first:
                        await self._send_some()
                self._waiting.set(len(self._items))
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything is stored; False if that takes too long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _send_some(self) -> None:
        """Send the first few, and drop those that are stored, up to the first that is not.

        What came behind that one is sent again with it, in the same order; the server knows it by its id.
        """
        items = list(itertools.islice(self._items, self._in_flight))
        for item, stored in zip(items, await asyncio.gather(*map(self._send, items)), strict=True):
            if not stored:
                break
            if self._items and self._items[0] is item:  # else it made room meanwhile
                self._items.popleft()

    async def _send(self, item: _Item) -> bool:
        """Try once; True: done with this message."""
        if not self._client.is_connected:
            await asyncio.sleep(_RETRY_SECONDS)
            return False
        try:
            await self._js.publish(item.subject, item.payload, headers={**item.headers, "Nats-Msg-Id": item.identity})
        except APIError as error:
            if error.err_code == _TOO_LARGE:
                DROPPED.labels("too_large").inc()
                log.exception("publish.too_large", extra={"subject": item.subject, "bytes": len(item.payload)})
                return True
            await self._back_off(error)
            return False
        except nats.errors.MaxPayloadError:
            DROPPED.labels("too_large").inc()
            log.exception("publish.too_large", extra={"subject": item.subject, "bytes": len(item.payload)})
            return True
        except (nats.errors.Error, NoStreamResponseError, TimeoutError) as error:
            await self._back_off(error)
            return False
        PUBLISHED.inc()
        return True

    async def _back_off(self, error: Exception) -> None:
        log.debug("publish.retried", extra={"reason": repr(error)})
        await asyncio.sleep(_RETRY_SECONDS)
