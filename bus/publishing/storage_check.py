"""Whether a stream still has what it acknowledged: after a loss of power a server may come back with less than it had.

A producer of samples need not ask, since others count that gap. One that publishes a state only when it changes must,
or what was lost stays unknown until the next change. It asks after each reconnect, before it publishes anything else,
and each minute: a stream that somebody deletes is made again empty while the producer stays connected.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import stream
from bus.reading.setback import SET_BACK

_LOOK_SECONDS = 60.0  # a stream that somebody deletes is rare, and no reconnection shows it


class StorageLost(nats.errors.Error):
    """The stream came back without a message that it had acknowledged, or was deleted."""


class StorageCheck:
    """The last message that each stream acknowledged, and whether it is still there."""

    def __init__(self, client: Client, streams: Sequence[str], *, timeout_seconds: float) -> None:
        """Begin without any message.

        Args:
            client: Connection of the producer.
            streams: Names of the streams to ask for.
            timeout_seconds: Time limit for each request to the server.
        """
        self._client, self._streams, self._timeout = client, streams, timeout_seconds
        self._last: dict[str, tuple[int, str]] = {}
        self._created: dict[str, datetime] = {}
        self._reconnects, self._due = client.stats["reconnects"], 0.0

    async def begin(self) -> None:
        """Take note of which streams there are, before the producer reads what it has published earlier.

        Raises:
            NotFound: One of them does not exist.
            nats.errors.Error: The server did not answer; also TimeoutError.
        """
        self._created = {name: (await stream.describe(self._client, name)).created for name in self._streams}

    def acknowledged(self, name: str, sequence: int, identity: str) -> None:
        """Take note of a message of a stream, and of the id under which it was published.

        An acknowledgement that comes between a reconnect and `check` says nothing of what was stored before.
        """
        if self._client.stats["reconnects"] == self._reconnects:
            self._last[name] = sequence, identity

    async def check(self) -> None:
        """Ask the server once after each reconnect, and each minute; a message that has gone since counts as kept.

        Raises:
            StorageLost: A message is no longer there; publish again what its stream lacks.
            nats.errors.Error: The server did not answer; also TimeoutError. Call again.
        """
        reconnects, now = self._client.stats["reconnects"], asyncio.get_running_loop().time()
        if reconnects == self._reconnects and now < self._due:
            return
        lost = {name: loss for name in self._created if (loss := await self._loss(name))}
        for name in lost:
            SET_BACK.labels(name).inc()
        if lost:
            raise StorageLost("; ".join(f"stream {name} {loss}" for name, loss in lost.items()))
        self._reconnects, self._due = reconnects, now + _LOOK_SECONDS

    async def _loss(self, name: str) -> str:
        """Return what happened to a stream, as the end of a sentence; empty: it has the last message."""
        sequence, identity = self._last.get(name, (0, ""))
        try:
            state = await stream.describe(self._client, name)
        except NotFoundError:
            return "was deleted"
        if state.created != self._created[name]:
            return "was deleted and made again"
        if sequence and (state.last < sequence or not await self._is_kept(name, sequence, identity)):
            return f"came back without message {sequence}, which it had acknowledged"
        return ""

    async def _is_kept(self, name: str, sequence: int, identity: str) -> bool:
        try:
            message = await self._client.jetstream(timeout=self._timeout).get_msg(name, sequence)
        except NotFoundError:
            return True  # it has expired, or a newer one of its key has replaced it
        return (message.headers or {}).get("Nats-Msg-Id") == identity
