"""A producer's queue of messages: each is sent, in order, until the stream has stored it.

Publishing without acknowledgements loses messages, without any error, when the server dies. Here each message waits for
its acknowledgement and is sent again with the same id, by which the stream stores it once.
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
DROPPED = Counter("spazio_publish_dropped_total", "messages dropped, by reason", ["reason"])
WAITING = Gauge("spazio_publish_waiting", "messages that wait for the server", ["kind"])


class _Item(NamedTuple):
    subject: str
    payload: bytes
    identity: str
    headers: Mapping[str, str]


class Outbox:
    """A bounded queue in front of a stream; a full queue drops its oldest message."""

    def __init__(
        self, client: Client, health: Health, *, limit: int, timeout_seconds: float, kind: str, in_flight: int = 1
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
        """Queue a message; the same message always has the same `identity`. Call from the event loop's thread."""
        if len(self._items) >= self._limit:
            self._items.popleft()
            DROPPED.labels("full").inc()
        self._items.append(_Item(subject, payload, identity, headers or {}))
        self._waiting.set(len(self._items))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Send queued messages until cancelled."""
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
        """Wait until all messages are stored; False: the time ran out."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _send_some(self) -> None:
        """Send the first messages, and remove those that are stored, up to the first that is not.

        Later messages are sent again after that one, in the same order; the stream recognizes them by their ids.
        """
        items = list(itertools.islice(self._items, self._in_flight))
        for item, stored in zip(items, await asyncio.gather(*map(self._send, items)), strict=True):
            if not stored:
                break
            if self._items and self._items[0] is item:  # else a full queue has dropped it meanwhile
                self._items.popleft()

    async def _send(self, item: _Item) -> bool:
        """Try once; True: the message is stored or dropped."""
        if not self._client.is_connected:
            await asyncio.sleep(_RETRY_SECONDS)
            return False
        try:
            await self._js.publish(item.subject, item.payload, headers={**item.headers, "Nats-Msg-Id": item.identity})
        except APIError as error:
            if error.err_code == _TOO_LARGE:
                DROPPED.labels("too_large").inc()
                log.exception(
                    "message.dropped",
                    extra={"subject": item.subject, "reason": "too large", "bytes": len(item.payload)},
                )
                return True
            await self._back_off(error)
            return False
        except nats.errors.MaxPayloadError:
            DROPPED.labels("too_large").inc()
            log.exception(
                "message.dropped", extra={"subject": item.subject, "reason": "too large", "bytes": len(item.payload)}
            )
            return True
        except (nats.errors.Error, NoStreamResponseError, TimeoutError) as error:
            await self._back_off(error)
            return False
        PUBLISHED.inc()
        return True

    async def _back_off(self, error: Exception) -> None:
        log.debug("publish.retried", extra={"reason": repr(error)})
        await asyncio.sleep(_RETRY_SECONDS)
