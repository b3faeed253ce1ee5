"""Renews the pin of a lease while no reader does."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping

import nats.errors
from nats.aio.client import Client

from bus import api
from bus.reading import tap
from bus.reading.pin import GROUP
from bus.reading.tap import Tap

log = logging.getLogger(__name__)

_EXPIRES_SECONDS = 0.1


async def ask(client: Client, stream: str, consumer: str, inbox: Tap, terms: Mapping[str, object]) -> None:
    """Send one request for one message.

    Raises:
        nats.errors.Error: There is no connection; also OSError.
    """
    request = {"batch": 1, "group": GROUP, **terms}
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(request).encode(), inbox.inbox)


class Renewal:
    """Asks for a message under the pin again and again; what comes is discarded."""

    def __init__(
        self, client: Client, stream: str, consumer: str, terms: Callable[[], Mapping[str, str]], seconds: float
    ) -> None:
        """Describe the lease; nothing is sent before `start`.

        Args:
            client: Connection.
            stream: Stream of the consumer.
            consumer: The consumer.
            terms: Returns the fields that a request of the holder must contain; empty: there is none any more.
            seconds: Time between two requests.
        """
        self._client, self._stream, self._consumer = client, stream, consumer
        self._terms, self._seconds = terms, seconds
        self._task: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    def start(self) -> None:
        """Renew the pin until `stop`, or until there are no terms."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send no request any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def expired(self) -> None:
        """Wait until no request is open; the server would still answer one."""
        await asyncio.sleep(max(0.0, self._asked_at + _EXPIRES_SECONDS - asyncio.get_running_loop().time()))

    async def _run(self) -> None:
        inbox: Tap | None = None
        try:
            while terms := self._terms():
                self._asked_at = asyncio.get_running_loop().time()
                try:
                    inbox = inbox or await tap.listen(self._client, lambda *_: None)
                    expires = {"expires": api.nanoseconds(_EXPIRES_SECONDS)}
                    await ask(self._client, self._stream, self._consumer, inbox, {**expires, **terms})
                except (nats.errors.Error, OSError) as error:
                    log.debug("lease.renewal_failed", extra={"consumer": self._consumer, "reason": str(error)})
                await asyncio.sleep(self._seconds)
        finally:
            if inbox is not None:
                await inbox.close()
