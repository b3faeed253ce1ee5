"""Who reads what: one durable consumer that the server gives to one replica at a time.

The consumer has a priority group in which the server pins one client. Whoever holds the pin reads; the others wait
with an open request and are served as soon as the pin is given back, or was not used for the timeout. A pin alone
keeps nobody from folding what another has folded, and a new holder would be sent newer messages before those that
the last one never finished; so a holder first sets the consumer back to where its own state ends, and what it
publishes is fenced by its cursor.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import nats.errors
from nats.aio.client import Client

from bus import api
from bus.reading import tap
from bus.reading.tap import Tap

log = logging.getLogger(__name__)

_GROUP = "owner"
_PIN = b"Nats-Pin-Id: "
_EXPIRES_SECONDS = 5.0
_HEARTBEAT_SECONDS = 1.0
_RETRY_SECONDS = 0.25
_KEEP_SECONDS = 0.1
_PATIENCE_SECONDS = 1.0  # a cluster never answers what it was asked while it had no leader
_WAITING = 4096  # requests that standby replicas may have open


class Lost(nats.errors.Error):
    """The server has given the consumer to another replica."""


class Lease:
    """The right to read some subjects of a stream under a consumer's name.

    Use as an async context manager, which gives the lease back. One at a time: `acquire`, then a `Reader` with this
    lease, until it raises `Lost` or is done.
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
    ) -> None:
        """Describe the lease; nothing is sent before `acquire`.

        Args:
            client: Connection.
            stream: Stream to read.
            consumer: Name of the durable consumer; the same for all replicas.
            subjects: Subject filters, as the stream stores them.
            failover_seconds: A holder that asks for nothing so long loses the lease.
            timeout_seconds: For requests to the server.
            covered: Tells the sequence up to which the work is known to be done. What was sent to a holder that died
                is nobody's otherwise, until something new comes.
        """
        self._covered = covered
        self._client, self._stream, self.consumer = client, stream, consumer
        self._subjects, self._failover, self._timeout = list(subjects), failover_seconds, timeout_seconds
        self._pin = self._said = ""
        self._mark = b""
        self._keeping: asyncio.Task[None] | None = None
        self._kept = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    @property
    def held(self) -> bool:
        """Whether it is ours as far as we know."""
        return bool(self._pin)

    @property
    def expires_seconds(self) -> float:
        """How long a holder's request may stay open: three of them fit the time after which the lease is lost."""
        return self._failover / 3

    @property
    def terms(self) -> dict[str, str]:
        """What a holder's request for messages must say."""
        return {"group": _GROUP, "id": self._pin}

    async def acquire(self) -> None:
        """Wait until the server gives the consumer to us; as long as it takes, whatever the server does meanwhile.

        Nothing is given while there is nothing to read. What comes with the pin is thrown away: `open` sets the
        consumer back.
        """
        waiting = _Waiting()
        inbox = await tap.listen(self._client, waiting.collect)
        try:
            while not waiting.pin:
                await self._stand_by(inbox, waiting)
        finally:
            await inbox.close()
        self._pin, self._mark = waiting.pin, waiting.pin.encode()
        self._keeping = asyncio.create_task(self._keep())

    async def _stand_by(self, inbox: Tap, waiting: "_Waiting") -> None:
        """Ask once; returns when the request is served, is over, or was not heard of any more."""
        waiting.over = waiting.unserved = False
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._make()
        except (nats.errors.Error, TimeoutError, OSError) as error:
            if self._said != repr(error):
                self._said = repr(error)
                log.warning("lease.waiting", extra={"consumer": self.consumer, "reason": self._said})
        # Asked all the same: it may be there although nobody said so.
        try:
            await self._ask(
                inbox, {"expires": _nanoseconds(_EXPIRES_SECONDS), "idle_heartbeat": _nanoseconds(_HEARTBEAT_SECONDS)}
            )
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
            await self._call_back()

    async def _call_back(self) -> None:
        """Have what a holder left undone sent again, where nobody holds the consumer any more."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                about = await self._info()
                # Without a number of its own it has sent nothing since it was last set back.
                sent = about["delivered"]["stream_seq"] if about["delivered"]["consumer_seq"] else 0
                if not _pins(about) and sent > (done := await self._covered()):
                    log.info("lease.called_back", extra={"consumer": self.consumer, "undone": done})
                    # To the beginning: should another be given it meanwhile, the place of what comes tells it so.
                    await self._reset(0)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.debug("lease.not_called_back", extra={"consumer": self.consumer, "reason": str(error)})

    async def open(self, position: int) -> str:
        """Set the consumer to behind a position, and return its name.

        Raises:
            Lost: Another replica has the lease, or nobody.
            nats.errors.Error: The server did not do it; also TimeoutError.
        """
        try:
            pinned = await self._pinned()
        except api.Refused as refused:  # a server that was killed soon after it made the consumer forgets it
            raise Lost(f"{self.consumer}: {refused}") from refused
        if not pinned:
            raise Lost(f"{self.consumer} is another's")
        # A request that is still open would be served a message that the reader then misses. Where there are leaf
        # servers one outlives its inbox.
        await self._stop_keeping()
        await asyncio.sleep(max(0.0, self._kept + _KEEP_SECONDS - asyncio.get_running_loop().time()))
        await self._reset(position)
        return self.consumer

    def check(self, headers: bytes | None) -> None:
        """See that a message came under our pin.

        Raises:
            Lost: It did not.
        """
        if headers is None or self._mark not in headers:
            raise Lost(f"{self.consumer} is sent under another pin")

    async def release(self) -> None:
        """Give the lease back at once; the server takes it back by itself if that fails."""
        await self._stop_keeping()
        if not self._pin or not self._client.is_connected:
            self._pin = ""
            return
        try:
            if await self._pinned():
                verb = f"CONSUMER.UNPIN.{self._stream}.{self.consumer}"
                await api.request(self._client, verb, {"group": _GROUP}, self._timeout)
        except (nats.errors.Error, TimeoutError) as error:
            log.debug("lease.left", extra={"consumer": self.consumer, "reason": str(error)})
        self._pin = ""

    def forget(self) -> None:
        """Take note that the lease is lost, so that it is not taken from its new holder."""
        self._pin = ""

    async def _pinned(self) -> bool:
        return self._pin in _pins(await self._info())

    async def _info(self) -> dict[str, Any]:
        return await api.request(self._client, f"CONSUMER.INFO.{self._stream}.{self.consumer}", {}, self._timeout)

    async def _reset(self, position: int) -> None:
        verb = f"CONSUMER.RESET.{self._stream}.{self.consumer}"
        await api.request(self._client, verb, {"seq": position + 1}, self._timeout)

    async def _keep(self) -> None:
        """Use the pin while state is loaded, so that it is not given to another meanwhile."""
        inbox = await tap.listen(self._client, lambda *_: None)
        try:
            while True:
                self._kept = asyncio.get_running_loop().time()
                await self._ask(inbox, {"expires": _nanoseconds(_KEEP_SECONDS), **self.terms})
                await asyncio.sleep(self.expires_seconds)
        except (nats.errors.Error, OSError) as error:
            log.debug("lease.unkept", extra={"consumer": self.consumer, "reason": str(error)})
        finally:
            await inbox.close()

    async def _stop_keeping(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.wait({keeping})

    async def _make(self) -> None:
        config: dict[str, Any] = {
            "name": self.consumer,
            "durable_name": self.consumer,
            "filter_subjects": self._subjects,
            "ack_policy": "none",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "max_waiting": _WAITING,
            "mem_storage": True,
            "priority_groups": [_GROUP],
            "priority_policy": "pinned_client",
            "priority_timeout": _nanoseconds(self._failover),
        }
        verb = f"CONSUMER.CREATE.{self._stream}.{self.consumer}"
        await api.request(self._client, verb, {"stream_name": self._stream, "config": config}, self._timeout)

    async def _ask(self, inbox: Tap, terms: dict[str, object]) -> None:
        request = {"batch": 1, "group": _GROUP, **terms}
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self.consumer}"
        await self._client.publish(verb, json.dumps(request).encode(), reply=inbox.inbox)


class _Waiting:
    """What has come of a standby's request: a pin, or that it is over, perhaps because nobody serves it."""

    def __init__(self) -> None:
        self.pin = ""
        self.over = self.unserved = False
        self.heard = asyncio.Event()

    def collect(self, _subject: bytes, reply: bytes, _data: bytes, headers: bytes | None) -> None:
        if reply:
            # The server's own header comes last; a stored message may carry one of that name too.
            self.pin = (headers or b"").rpartition(_PIN)[2].partition(b"\r\n")[0].decode(errors="replace")
        elif (status := tap.fields(headers)["Status"]) != "100":
            self.over = True
            self.unserved = status == "503"
        self.heard.set()


def _pins(about: dict[str, Any]) -> set[str]:
    return {pin for group in about.get("priority_groups") or [] if (pin := group.get("pinned_client_id"))}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 10**9)
