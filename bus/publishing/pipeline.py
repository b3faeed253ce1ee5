"""Many messages a second into a stream, each acknowledged, with little work for each.

`js.publish` waits for one answer at a time, and `publish_async` of the client forgets permits and waits for ever for
answers that a dead server owes. Here many messages are on their way at once, up to a limit; answers come to an inbox
of our own and are counted off. Whatever is unanswered for too long, or was on its way when the connection broke, is
sent again in its old order and with its old id, by which the stream stores it once.
"""

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import Sequence
from typing import NamedTuple, Self

from nats.aio.client import Client
from prometheus_client import Counter, Gauge

from bus.reading import tap
from bus.reading.tap import Tap

log = logging.getLogger(__name__)

NO_STREAM = "there is no stream for it"

_LOOK_SECONDS = 0.05
_RETRY_SECONDS = 0.2
_FRAME = b"HPUB %b %b%d %d %d\r\nNATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n%b\r\n"
_HEADER_BYTES = len(b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")

STORED = Counter("spazio_pipeline_stored_total", "messages that the stream acknowledged")
RESENT = Counter("spazio_pipeline_resent_total", "messages sent again")
REFUSED = Counter("spazio_pipeline_refused_total", "answers of the stream that were errors")
IN_FLIGHT = Gauge("spazio_pipeline_in_flight", "messages sent and not acknowledged")


class Outgoing(NamedTuple):
    """A message; `identity` is the same for the same message, always. Subject and identity are ASCII."""

    subject: bytes
    payload: bytes
    identity: bytes


class Pipeline:
    """Publishes in order, with a bounded number of messages on their way.

    Attributes:
        sent: Messages taken.
        stored: Messages acknowledged, duplicates among them.
        duplicates: Acknowledged messages that the stream had already.
        resent: Messages sent again.
        refused: Errors of the stream, by what it said; such messages are sent again.
    """

    def __init__(self, client: Client, *, limit: int, timeout_seconds: float) -> None:
        """Describe the pipeline; it works within `async with`, while `run` runs.

        Args:
            client: Connection.
            limit: Messages on their way at most.
            timeout_seconds: An acknowledgement that takes longer is given up, and the message sent again.
        """
        self._client, self._limit, self._timeout = client, limit, timeout_seconds
        self._waiting: dict[int, tuple[Outgoing, float]] = {}
        self._tap: Tap | None = None
        self._inbox = b""
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._room = asyncio.Event()
        self._again = self._closed = False
        self._next = 0
        self.sent = self.stored = self.duplicates = self.resent = 0
        self.refused: Tally[str] = Tally()

    async def __aenter__(self) -> Self:
        self._tap = await tap.listen(self._client, self._answered, below=".*")
        self._inbox = self._tap.inbox.removesuffix("*").encode()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        if self._tap is not None:
            await self._tap.close()

    @property
    def in_flight(self) -> int:
        """Messages sent and not acknowledged."""
        return len(self._waiting)

    async def send(self, messages: Sequence[Outgoing], *, until: float | None = None) -> None:
        """Send messages; waits while too many are on their way, or while there is no connection.

        Args:
            messages: What to send, in this order.
            until: Time of the loop, in seconds, to wait until; None: as long as it takes.

        Raises:
            TimeoutError: There was no room in time; the rest is not sent.
            ValueError: A message is larger than the server takes.
        """
        for start in range(0, len(messages), self._limit):
            part = messages[start : start + self._limit]
            async with self._lock:
                while len(self._waiting) + len(part) > self._limit or not self._client.is_connected:
                    if until is not None and self._loop.time() > until:
                        raise TimeoutError("nothing is acknowledged, so there is no room for more messages")
                    self._room.clear()
                    self._lock.release()  # what is overdue must be sent again meanwhile
                    try:
                        await self._wait()
                    finally:
                        await self._lock.acquire()
                await self._write(dict(enumerate(part, self._next)))
                self._next += len(part)
                self.sent += len(part)

    async def run(self) -> None:
        """Send again what stays unanswered, until the pipeline is closed."""
        reconnects, counted = self._client.stats["reconnects"], self.stored
        while not self._closed:  # the client swallows a cancellation that comes while it sends
            await asyncio.sleep(_LOOK_SECONDS)
            IN_FLIGHT.set(len(self._waiting))
            STORED.inc(self.stored - counted)
            counted = self.stored
            if self._again:
                await asyncio.sleep(_RETRY_SECONDS)
            broken = self._client.stats["reconnects"] != reconnects
            first = next(iter(self._waiting.values()), None)
            overdue = first is not None and first[1] < self._loop.time()
            if not (overdue or broken or self._again) or not self._client.is_connected:
                continue
            reconnects, self._again = self._client.stats["reconnects"], False
            async with self._lock:
                waiting = {number: message for number, (message, _) in self._waiting.items()}
                self._waiting.clear()
                self.resent += len(waiting)
                RESENT.inc(len(waiting))
                await self._write(waiting)
            if waiting:
                log.info("pipeline.resent", extra={"messages": len(waiting), "reason": dict(self.refused)})

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until everything is acknowledged; False if that takes too long."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._waiting:
                    self._room.clear()
                    await self._wait()
        except TimeoutError:
            return False
        return True

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._room.wait()
        except TimeoutError:
            pass

    async def _write(self, messages: dict[int, Outgoing]) -> None:
        """Write frames; the client's own `publish` checks and builds each anew, which costs several times as much."""
        deadline = self._loop.time() + self._timeout
        frames, largest = [], self._client.max_payload
        for number, message in messages.items():
            header = _HEADER_BYTES + len(message.identity)
            whole = header + len(message.payload)
            if whole > largest:
                raise ValueError(f"message {message.identity.decode()} has {whole} bytes, the server takes {largest}")
            frames.append(
                _FRAME % (message.subject, self._inbox, number, header, whole, message.identity, message.payload)
            )
            self._waiting[number] = (message, deadline)
        await self._client._send_command(b"".join(frames))  # noqa: SLF001 # see above
        await self._client._flush_pending()  # noqa: SLF001

    def _answered(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes | None) -> None:
        if not data or b'"error"' in data:  # no data: the server says that no stream has the subject
            self.refused[data[:200].decode(errors="replace") or NO_STREAM] += 1
            REFUSED.inc()
            self._again = True
            return
        if self._waiting.pop(int(subject[len(self._inbox) :]), None) is None:
            return
        self.stored += 1
        if b'"duplicate"' in data:
            self.duplicates += 1
        self._room.set()
