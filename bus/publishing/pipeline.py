"""Publishes many messages a second to a stream, each acknowledged, with little work for each.

`js.publish` waits for one acknowledgement at a time. `publish_async` of the client leaks permits and waits for ever for
acknowledgements of a dead server. Here many messages are in flight at once, up to a limit, and acknowledgements arrive
at one inbox. Messages without an acknowledgement in time, and those in flight when the connection broke, are sent again
in the same order and with the same ids, by which the stream stores each once.
"""

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import Sequence
from typing import NamedTuple, Self

from nats.aio.client import Client
from prometheus_client import Counter, Gauge

from bus.health import Health
from bus.publishing.identity import Claims, Sealer
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
    """A message; the same message always has the same `identity`, of which its id is made. The subject is ASCII."""

    subject: bytes
    payload: bytes
    identity: bytes


class Pipeline:
    """Publishes in order, with a bounded number of messages in flight.

    Attributes:
        sent: Messages accepted by `send`.
        stored: Messages acknowledged, including duplicates.
        duplicates: Acknowledged messages that the stream already had.
        resent: Messages sent again.
        refused: Number of errors of the stream, by error text; such messages are sent again.
    """

    def __init__(self, client: Client, *, limit: int, timeout_seconds: float, health: Health | None = None) -> None:
        """Describe the pipeline; use it within `async with`, while `run` runs.

        Args:
            client: Connection.
            limit: Messages in flight at most.
            timeout_seconds: Time limit for an acknowledgement, after which the message is sent again.
            health: Degraded if somebody else uses the ids of these messages; None: the caller sends some twice.
        """
        self._sealer = Sealer()
        self._claims = None if health is None else Claims(health, self._sealer)
        self._again_under: dict[int, int] = {}  # attempts by number, where an id was claimed by somebody else
        self._repeated: set[int] = set()  # numbers sent more than once
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
        """Send messages; wait while too many are in flight, or while there is no connection.

        Args:
            messages: Messages to send, in this order.
            until: Deadline as time of the loop, in seconds; None: no deadline.

        Raises:
            TimeoutError: The deadline passed; the rest is not sent.
            ValueError: A message exceeds the server's limit.
        """
        for start in range(0, len(messages), self._limit):
            part = messages[start : start + self._limit]
            async with self._lock:
                while len(self._waiting) + len(part) > self._limit or not self._client.is_connected:
                    if until is not None and self._loop.time() > until:
                        raise TimeoutError("nothing is acknowledged, so there is no room for more messages")
                    self._room.clear()
                    self._lock.release()  # `run` must be able to send overdue messages again
                    try:
                        await self._wait()
                    finally:
                        await self._lock.acquire()
                await self._write(dict(enumerate(part, self._next)))
                self._next += len(part)
                self.sent += len(part)

    async def run(self) -> None:
        """Send messages without an acknowledgement again, until the pipeline is closed."""
        reconnects, counted = self._client.stats["reconnects"], self.stored
        while not self._closed:  # the client swallows a cancellation while it sends
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
                self._repeated.update(waiting)
                RESENT.inc(len(waiting))
                await self._write(waiting)
            if waiting:
                log.info("pipeline.resent", extra={"messages": len(waiting), "reason": dict(self.refused)})

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until all messages are acknowledged; False: the time ran out."""
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
        """Write frames; the client's own `publish` costs several times as much, since it checks each message.

        Raises:
            ValueError: A message exceeds the server's limit; none is sent, and none counts as in flight.
        """
        deadline = self._loop.time() + self._timeout
        frames, largest = [], self._client.max_payload
        for number, message in messages.items():
            identity = self._sealer.seal(message.identity, self._again_under.get(number, 0)).encode()
            header = _HEADER_BYTES + len(identity)
            whole = header + len(message.payload)
            if whole > largest:
                raise ValueError(f"message {message.identity.decode()} has {whole} bytes, the server takes {largest}")
            frames.append(_FRAME % (message.subject, self._inbox, number, header, whole, identity, message.payload))
        self._waiting |= {number: (message, deadline) for number, message in messages.items()}
        await self._client._send_command(b"".join(frames))  # noqa: SLF001 # see above
        await self._client._flush_pending()  # noqa: SLF001

    def _answered(self, subject: bytes, _reply: bytes, data: bytes, _headers: bytes | None) -> None:
        if not data or b'"error"' in data:  # without data: no stream has the subject
            self.refused[data[:200].decode(errors="replace") or NO_STREAM] += 1
            REFUSED.inc()
            self._again = True
            return
        number = int(subject[len(self._inbox) :])
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return
        if b'"duplicate"' in data:
            if self._is_claimed(number, waiting[0]):
                self._waiting[number] = waiting
                self._again = True
                return
            self.duplicates += 1
        elif self._claims is not None:
            self._claims.sent(waiting[0].identity)
        self._repeated.discard(number)
        self._again_under.pop(number, None)
        self.stored += 1
        self._room.set()

    def _is_claimed(self, number: int, message: Outgoing) -> bool:
        """Return whether somebody else has used the id of a message; then it is sent again under another one."""
        if self._claims is None or number in self._repeated:
            return False
        if not self._claims.claimed(message.identity, message.subject.decode()):
            return False
        self._again_under[number] = self._again_under.get(number, 0) + 1
        return True
