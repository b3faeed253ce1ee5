"""A reader of the consumer that a lease holds."""

from bus.client import Client
from bus.reading import progress
from bus.reading.lease import Lease
from bus.reading.progress import HEARTBEATS, Progress
from bus.reading.reader import Reader
from bus.reading.setback import Mark


class LeasedReader(Reader):
    """Reads the stream and subjects of a held lease; `read` raises `Lost` once another replica has the lease."""

    def __init__(
        self, client: Client, lease: Lease, *, after: int | Mark = 0, batch: int = 500, timeout_seconds: float = 5
    ) -> None:
        """Describe the reader; nothing is sent before the first `read`.

        Args:
            client: Connection.
            lease: Held lease; its consumer is read.
            after: Read from the sequence behind this one, as `Reader`.
            batch: Messages requested at once.
            timeout_seconds: Time limit for each request to the server.
        """
        super().__init__(
            client, lease.stream, lease.subjects, after=after, batch=batch, timeout_seconds=timeout_seconds
        )
        self._lease = lease
        self._expires, self._heartbeat = lease.expires_seconds, lease.expires_seconds / HEARTBEATS
        self._progress = Progress(
            self.mark, pending=0, batch=batch, heartbeat_seconds=self._heartbeat, nudges=progress.NUDGES
        )
