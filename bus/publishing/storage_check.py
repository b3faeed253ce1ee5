"""Whether a stream still has what it acknowledged: after a loss of power a server may come back with less than it had.

A producer of samples need not ask, since others count that gap. One that publishes a state only when it changes must,
or what was lost stays unknown until the next change. It asks after each reconnect, before it publishes anything else.
"""

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from bus import stream
from bus.reading.setback import SET_BACK

_REASON = "stream {} came back without message {}, which it had acknowledged"


class StorageLost(nats.errors.Error):
    """The stream came back without a message that it had acknowledged."""


class StorageCheck:
    """The last message that each stream acknowledged, and whether it is still there."""

    def __init__(self, client: Client, *, timeout_seconds: float) -> None:
        """Begin without any message.

        Args:
            client: Connection of the producer.
            timeout_seconds: Time limit for each request to the server.
        """
        self._client, self._timeout = client, timeout_seconds
        self._last: dict[str, tuple[int, str]] = {}
        self._reconnects = client.stats["reconnects"]

    def acknowledged(self, name: str, sequence: int, identity: str) -> None:
        """Take note of a message of a stream, and of the id under which it was published.

        An acknowledgement that comes between a reconnect and `check` says nothing of what was stored before.
        """
        if self._client.stats["reconnects"] == self._reconnects:
            self._last[name] = sequence, identity

    async def check(self) -> None:
        """Ask the server once after each reconnect; a message that has gone since counts as kept.

        Raises:
            StorageLost: A message is no longer there; publish again what its stream lacks.
            nats.errors.Error: The server did not answer; also TimeoutError. Call again.
        """
        reconnects = self._client.stats["reconnects"]
        if reconnects == self._reconnects:
            return
        lost = [
            (name, sequence)
            for name, (sequence, identity) in self._last.items()
            if not await self._is_kept(name, sequence, identity)
        ]
        for name, _ in lost:
            SET_BACK.labels(name).inc()
        if lost:
            raise StorageLost("; ".join(_REASON.format(*each) for each in lost))
        self._reconnects = reconnects

    async def _is_kept(self, name: str, sequence: int, identity: str) -> bool:
        try:
            state = await stream.describe(self._client, name)
        except NotFoundError:
            return False
        if state.last < sequence:
            return False
        try:
            message = await self._client.jetstream(timeout=self._timeout).get_msg(name, sequence)
        except NotFoundError:
            return True  # it has expired, or a newer one of its key has replaced it
        return (message.headers or {}).get("Nats-Msg-Id") == identity
