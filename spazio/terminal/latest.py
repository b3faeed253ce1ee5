"""The newest availability of each node, followed live, for `top` and for the start screen."""

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from bus import connection, errors, subscription
from bus.access import greeting
from bus.connection import Connection
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names

_PART_SECONDS = 0.3
_GREETING_SECONDS = 0.8
_AWAY = "it went away, or did not answer in time: try again"


class Unreachable(RuntimeError):
    """No pipeline answers.

    Attributes:
        status: Exit status of a command that ends for this reason.
    """

    status = 1


class Unacceptable(Unreachable):
    """There can be no connection: a file of it, or the user, or the server, is not the right one."""

    status = 2


class Nodes:
    """The contents of the scheduler cache, updated as it changes."""

    def __init__(
        self,
        changes: Subscription[Availability],
        expiry_seconds: float,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        self._changes, self._expiry, self._connected = changes, expiry_seconds, connected
        self._heard = time.monotonic()
        self._rows: dict[str, Availability] = {}
        self.unread = -1  # messages that the server has and that have not arrived; -1: not known yet

    async def read(self, timeout_seconds: float) -> list[Availability]:
        """Wait for changes at most `timeout_seconds` and return all nodes that have not expired, by name."""
        batch = await self._changes.read(timeout_seconds=timeout_seconds)
        self.unread = batch.pending
        self._rows |= {each.message.node: each.message for each in batch.messages}
        if self._connected():
            self._heard = time.monotonic()
        else:  # the last known rows stay, and their age says how old they are
            return [self._rows[node] for node in sorted(self._rows)]
        oldest = (time.time() - self._expiry) * 1e6
        self._rows = {node: row for node, row in self._rows.items() if row.at_us >= oldest}
        return [self._rows[node] for node in sorted(self._rows)]

    @property
    def silent_seconds(self) -> float | None:
        """For how long there has been no connection; None: there is one."""
        return None if self._connected() else time.monotonic() - self._heard

    async def read_all(self, timeout_seconds: float) -> list[Availability]:
        """Read until nothing is left to read, or the time is up; `unread` tells which."""
        rows: list[Availability] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while self.unread:
                    rows = await self.read(_PART_SECONDS)
        return rows


def _unanswered(settings: Settings, last: Sequence[Exception]) -> str:
    """Return why there was no connection in time, by what listens there now, and by the last error."""
    if fault := greeting.fault(settings.nats_url, _GREETING_SECONDS):
        return f"no NATS server answers at {settings.nats_shown}: {fault}"
    remedy = "try again, or raise --nats-connect-timeout-seconds"
    if any(isinstance(error, ssl.SSLError) for error in last):
        remedy = "name the authority of its certificate with --nats-ca"
    reason = "".join(f", {error}" for error in last if str(error))
    within = f"within {settings.nats.connect_timeout_seconds:g} s"
    return f"the NATS server {settings.nats_shown} accepts no connection {within}{reason}: {remedy}"


@asynccontextmanager
async def dial(settings: Settings) -> AsyncIterator[Connection]:
    """Connect for the length of a block.

    Raises:
        Unreachable: No server answers, or a request of the block failed.
        Unacceptable: The server does not accept this user, or a file of the connection cannot be used.
    """
    errors_of_attempts: deque[Exception] = deque(maxlen=1)
    try:
        async with asyncio.timeout(settings.nats.connect_timeout_seconds):
            client = await connection.dial(settings, "spazio-live", errors_of_attempts.append)
    except TimeoutError:
        raise Unreachable(await asyncio.to_thread(_unanswered, settings, list(errors_of_attempts))) from None
    except connection.Unacceptable as error:
        raise Unacceptable(str(error)) from error
    try:
        yield client
    except errors.REQUEST_FAILED as error:
        reason = str(error) if client.is_connected else ""
        raise Unreachable(f"{settings.nats_shown}: {reason or _AWAY}") from error
    finally:
        with contextlib.suppress(OSError):  # the server has gone without a goodbye
            await client.close()


@asynccontextmanager
async def follow(settings: Settings) -> AsyncIterator[Nodes]:
    """Connect to the scheduler cache.

    Raises:
        Unreachable: No server answers, or it has no cache.
    """
    bucket = Names(settings.prefix).availability_bucket
    async with dial(settings) as client:
        try:
            await client.jetstream().stream_info(f"KV_{bucket}")
        except errors.NotFound:
            raise Unreachable(f"{settings.nats_shown} has no bucket {bucket}: start the cache sink") from None
        reader = Reader(client, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True)
        # Refused messages are deleted keys or those of other writers; the cache sink writes nothing else.
        async with Subscription(reader, subscription.of(Availability), subscription.ignore) as changes:
            yield Nodes(changes, settings.cache.expiry_seconds, lambda: client.is_connected)
