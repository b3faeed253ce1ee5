"""A lease on a durable consumer, which the server gives to one replica at a time.

The consumer has a priority group in which the server pins one client. The holder of the pin reads; the other replicas
wait with an open request, and the server serves one of them as soon as the pin is released or was unused for the
timeout. A pin alone does not keep a replica from folding what another has folded, and the server would send newer
messages to a new holder before those that the last one did not finish. So a holder first resets the consumer to the
end of its own state, and its cursor fences the rows that it publishes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Self

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus import api
from bus.reading import pin, tap
from bus.reading.pin import GROUP, Holes, Waiting
from bus.reading.renewal import Renewal, ask
from bus.reading.tap import Tap

log = logging.getLogger(__name__)

_EXPIRES_SECONDS = 5.0
_HEARTBEAT_SECONDS = 1.0
_RETRY_SECONDS = 0.25
_PATIENCE_SECONDS = 1.0  # a cluster never answers a request sent while it had no leader

CONTENDED = Counter(
    "spazio_leases_contended_total",
    "times that somebody else pulled the messages of a lease under its holder's pin, or changed its consumer",
)


class Lost(nats.errors.Error):
    """The server has given the consumer to another replica."""


class Opened(NamedTuple):
    """A consumer that was reset to a position.

    Attributes:
        consumer: Its name.
        before: Messages behind the place where it was.
        pending: Messages behind the position.
    """

    consumer: str
    before: int
    pending: int


class Lease:
    """The right to read some subjects of a stream under a consumer's name.

    An async context manager, which releases the lease. First `acquire` it, then read with a `LeasedReader` until that
    raises `Lost`.

    Attributes:
        stream: Name of the stream.
        consumer: Name of the consumer.
        subjects: Subject filters.
        timeout_seconds: Time limit for each request to the server.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        consumer: str,
        subjects: Sequence[str],
        *,
        failover_seconds: float,
        timeout_seconds: float,
        covered: Callable[[], Awaitable[int]],
        taken: Callable[[], None] = lambda: None,
    ) -> None:
        """Describe the lease; nothing is sent before `acquire`.

        Args:
            client: Connection.
            stream: Stream to read.
            consumer: Name of the durable consumer; the same for all replicas.
            subjects: Subject filters, as the stream stores them.
            failover_seconds: Time without a request after which a holder loses the lease.
            timeout_seconds: Time limit for each request to the server.
            covered: Returns the sequence up to which the work is done. A standby replica uses it to have the messages
                sent again that a dead holder left undone; otherwise they would wait until a new message arrives.
            taken: Called now and then while this replica stands by and another one holds the lease.
        """
        self._covered, self._taken = covered, taken
        self._client, self.stream, self.consumer = client, stream, consumer
        self.subjects, self._failover, self.timeout_seconds = list(subjects), failover_seconds, timeout_seconds
        self._pin = self._last_error = ""
        self._mark = b""
        self._holes = Holes()
        self._config = pin.config(consumer, self.subjects, failover_seconds)
        self._renewal = Renewal(client, stream, consumer, lambda: self.terms if self._pin else {}, self.expires_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    @property
    def held(self) -> bool:
        """Whether this replica holds the lease, as far as it knows."""
        return bool(self._pin)

    @property
    def expires_seconds(self) -> float:
        """How long a holder's request stays open: a third of the time after which the lease is lost."""
        return self._failover / 3

    @property
    def terms(self) -> dict[str, str]:
        """Fields that a holder's request for messages must contain."""
        return {"group": GROUP, "id": self._pin}

    async def acquire(self) -> None:
        """Wait until the server pins this replica, as long as it takes; failures of the server are retried.

        The server pins no client while there is nothing to read. The message that comes with the pin is discarded:
        `open` resets the consumer.
        """
        waiting = Waiting()
        inbox = await tap.listen(self._client, waiting.collect)
        try:
            while not waiting.pin:
                await self._stand_by(inbox, waiting)
        finally:
            await inbox.close()
        self._pin, self._mark = waiting.pin, waiting.pin.encode()
        self.keep()

    def keep(self) -> None:
        """Renew the lease until `open`, while no reader does."""
        self._renewal.start()

    async def _stand_by(self, inbox: Tap, waiting: Waiting) -> None:
        """Send one request; return when the server serves it, ends it, or misses its heartbeats."""
        waiting.over = waiting.unserved = False
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._create()
        except (nats.errors.Error, TimeoutError, OSError) as error:
            if self._last_error != repr(error):
                self._last_error = repr(error)
                log.warning("lease.setup_failed", extra={"consumer": self.consumer, "reason": self._last_error})
        # The consumer may exist although the server has not confirmed it.
        try:
            heartbeat = api.nanoseconds(_HEARTBEAT_SECONDS)
            terms = {"expires": api.nanoseconds(_EXPIRES_SECONDS), "idle_heartbeat": heartbeat}
            await ask(self._client, self.stream, self.consumer, inbox, terms)
        except (nats.errors.Error, OSError):
            waiting.over = waiting.unserved = True
        while not (waiting.pin or waiting.over):
            waiting.heard.clear()
            try:
                async with asyncio.timeout(2.5 * _HEARTBEAT_SECONDS):
                    await waiting.heard.wait()
            except TimeoutError:
                return
        if waiting.unserved:
            await asyncio.sleep(_RETRY_SECONDS)
        elif not waiting.pin:
            await self._rewind()

    async def _rewind(self) -> None:
        """Have the messages sent again that a holder left undone, if no client is pinned any more; else report that."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                info = await self._info()
                # If the consumer's own number is 0, it has sent nothing since its last reset.
                sent = info["delivered"]["stream_seq"] if info["delivered"]["consumer_seq"] else 0
                if pin.pins(info):
                    self._taken()
                elif sent > (done := await self._covered()):
                    log.info("lease.rewound", extra={"consumer": self.consumer, "undone": done})
                    # To the beginning: a replica that is pinned meanwhile notices by the sequence of the next message.
                    await self._reset(0)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.debug("lease.rewind_failed", extra={"consumer": self.consumer, "reason": str(error)})

    async def open(self, position: int) -> Opened:
        """Reset the consumer to begin after a position.

        Raises:
            Lost: This replica does not hold the lease any more.
            nats.errors.Error: The consumer was not reset; also TimeoutError.
        """
        try:
            info = await self._info()
        except api.Refused as refused:  # a server killed soon after it created the consumer loses it
            raise Lost(f"{self.consumer}: {refused}") from refused
        if self._pin not in pin.pins(info):
            raise Lost(f"{self.consumer} is pinned to another client")
        # The server would answer a request that is still open with a message, which the reader would miss. With leaf
        # servers a request outlives its inbox.
        await self._renewal.stop()
        await self._renewal.expired()
        answer = await self._reset(position)
        return Opened(self.consumer, int(info["num_pending"]), int(answer["num_pending"]))

    def check(self, headers: bytes | None) -> None:
        """Check that a message was sent under this replica's pin.

        Raises:
            Lost: It was not.
        """
        if headers is None or self._mark not in headers:
            raise Lost(f"{self.consumer} sends under another pin")

    async def missed(self) -> None:
        """Record that messages sent under this pin did not come; end a pin that somebody else pulls under.

        Raises:
            Lost: It was ended; who acquires the lease next has another one.
        """
        if not self._holes.add(asyncio.get_running_loop().time()):
            return
        CONTENDED.inc()
        log.error("lease.contended", extra={"consumer": self.consumer, "stream": self.stream})
        await self.release()
        raise Lost(f"{self.consumer}: somebody else pulls its messages: revoke that credential")

    async def verify(self, *, pinned: bool = False) -> None:
        """Delete the consumer if somebody else has changed it; the next holder makes it again and misses nothing.

        Args:
            pinned: Also see that this replica still holds the lease, which a reader learns from each message.

        Raises:
            Lost: It was deleted; with `pinned` also: it is not there, or is pinned to another client.
        """
        try:
            info = await self._info()
        except (nats.errors.Error, TimeoutError) as error:
            if pinned and isinstance(error, api.Refused):
                raise Lost(f"{self.consumer}: {error}") from error
            return  # the reader notices what is wrong
        present = info["config"]
        if foreign := pin.foreign(present, self._config):
            CONTENDED.inc()
            log.error("lease.altered", extra={"consumer": self.consumer, "reason": ", ".join(foreign)})
            await self._delete()
            raise Lost(f"{self.consumer}: somebody else has changed {', '.join(foreign)}: revoke that credential")
        if pinned and self._pin not in pin.pins(info):
            raise Lost(f"{self.consumer} is pinned to another client")

    async def release(self) -> None:
        """Release the lease now; if that fails, the server ends it after the failover time."""
        await self._renewal.stop()
        if not self._pin or not self._client.is_connected:
            self._pin = ""
            return
        try:
            if self._pin in pin.pins(await self._info()):
                verb = f"CONSUMER.UNPIN.{self.stream}.{self.consumer}"
                await api.request(self._client, verb, {"group": GROUP}, self.timeout_seconds)
        except (nats.errors.Error, TimeoutError) as error:
            log.debug("lease.release_failed", extra={"consumer": self.consumer, "reason": str(error)})
        self._pin = ""

    def forget(self) -> None:
        """Record that the lease is lost, so that `release` does not take it from its new holder."""
        self._pin = ""

    async def _info(self) -> dict[str, Any]:
        return await api.request(self._client, f"CONSUMER.INFO.{self.stream}.{self.consumer}", {}, self.timeout_seconds)

    async def _reset(self, position: int) -> dict[str, Any]:
        verb = f"CONSUMER.RESET.{self.stream}.{self.consumer}"
        return await api.request(self._client, verb, {"seq": position + 1}, self.timeout_seconds)

    async def _create(self) -> None:
        request = {"stream_name": self.stream, "config": self._config}
        verb = f"CONSUMER.CREATE.{self.stream}.{self.consumer}"
        try:
            await api.request(self._client, verb, request, self.timeout_seconds)
        except api.Refused as refused:
            if not (foreign := pin.foreign((await self._info())["config"], self._config)):
                raise
            log.warning("lease.replaced", extra={"consumer": self.consumer, "reason": f"{foreign}: {refused}"})
            await self._delete()
            await api.request(self._client, verb, request, self.timeout_seconds)

    async def _delete(self) -> None:
        await api.request(self._client, f"CONSUMER.DELETE.{self.stream}.{self.consumer}", {}, self.timeout_seconds)
