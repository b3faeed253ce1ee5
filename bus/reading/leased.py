"""A reader of the consumer that a lease holds."""

import asyncio

from bus.client import Client
from bus.reading import progress
from bus.reading.lease import Lease
from bus.reading.progress import HEARTBEATS, Progress, Received
from bus.reading.reader import Reader
from bus.reading.setback import Mark

_VERIFY_SECONDS = 10.0


class LeasedReader(Reader):
    """Reads the stream and subjects of a held lease; `read` raises `Lost` once another replica has the lease."""

    def __init__(self, client: Client, lease: Lease, *, after: int | Mark = 0, batch: int = 500) -> None:
        """Describe the reader; nothing is sent before the first `read`.

        Args:
            client: Connection.
            lease: Held lease; its consumer is read.
            after: Read from the sequence behind this one, as `Reader`.
            batch: Messages requested at once.
        """
        super().__init__(
            client, lease.stream, lease.subjects, after=after, batch=batch, timeout_seconds=lease.timeout_seconds
        )
        self._lease = self._held = lease
        self._expires, self._heartbeat = lease.expires_seconds, lease.expires_seconds / HEARTBEATS
        self._progress = Progress(
            self.mark, pending=0, batch=batch, heartbeat_seconds=self._heartbeat, nudges=progress.NUDGES
        )
        self._verified = asyncio.get_running_loop().time()

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> list[Received]:
        """Return messages as `Reader.read`; see from time to time that the consumer is as the lease made it."""
        if self._verification_due():
            await self._held.verify()
        return await super().read(linger_seconds=linger_seconds, timeout_seconds=timeout_seconds)

    def _verification_due(self) -> bool:
        """Tell whether it is time to see that the consumer is as the lease made it, and take that as done."""
        now = asyncio.get_running_loop().time()
        if due := now - self._verified > _VERIFY_SECONDS:
            self._verified = now
        return due
