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
    """The last message that a stream acknowledged, and whether it is still there."""

    def __init__(self, client: Client, name: str, *, timeout_seconds: float) -> None:
        """Begin without any message.

        Args:
            client: Connection of the producer.
            name: The stream.
            timeout_seconds: Time limit for each request to the server.
        """
        self._client, self._name, self._timeout = client, name, timeout_seconds
        self._sequence, self._identity = 0, ""
        self._reconnects = client.stats["reconnects"]

    def acknowledged(self, name: str, sequence: int, identity: str) -> None:
        """Take note of a message of any stream, and of the id under which it was published.

        An acknowledgement that comes between a reconnect and `check` says nothing of what was stored before.
        """
        if name == self._name and self._client.stats["reconnects"] == self._reconnects:
            self._sequence, self._identity = sequence, identity

    async def check(self) -> None:
        """Ask the server once after each reconnect; a message that has expired since counts as kept.

        Raises:
            StorageLost: The message is no longer there; publish again what the stream lacks.
            nats.errors.Error: The server did not answer; also TimeoutError. Call again.
        """
        reconnects = self._client.stats["reconnects"]
        if reconnects == self._reconnects:
            return
        if self._sequence and not await self._is_kept():
            SET_BACK.labels(self._name).inc()
            raise StorageLost(_REASON.format(self._name, self._sequence))
        self._reconnects = reconnects

    async def _is_kept(self) -> bool:
        try:
            state = await stream.describe(self._client, self._name)
            if self._sequence < state.first and self._sequence <= state.last:
                return True
            message = await self._client.jetstream(timeout=self._timeout).get_msg(self._name, self._sequence)
        except NotFoundError:
            return False
        return (message.headers or {}).get("Nats-Msg-Id") == self._identity
