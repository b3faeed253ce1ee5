"""How one kind of message of the cluster's state is read: first what is there, then what comes.

Messages are taken in small parts, so that a question does not wait behind thousands of them. The client's own watch of
a bucket is not used: it loses messages when a connection breaks, and says nothing.

A key that is deleted leaves a marker for some time. A reader that was cut off for longer has missed the first of them,
so it reads the bucket from its start, and what the bucket lacks has ended.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import Counter

from bus import stream, subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.reading.setback import Mark, SetBack
from bus.subscription import Batch, Decode, Decoded, Subscription
from schemas.settings import Settings
from sinks.extender.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_PART = 25  # messages taken before others get a turn
_LINGER_SECONDS = 0.02  # one by one they would cost as much as the answers
_PLACES_LINGER_SECONDS = 0.002  # what other replicas hold is to be known at once
_PATIENCE_SECONDS, _SILENCES = 0.5, 4
_QUIET_SECONDS = 60.0  # `read` returns after so long without a message, unless the server is away
_AGAIN_SECONDS = 0.5

TAKEN = Counter("spazio_extender_messages_total", "messages taken, by kind", ["kind"])
REFUSED = Counter("spazio_extender_refused_total", "messages that could not be read, by kind", ["kind"])

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Source(Generic[M]):
    """One kind of message that the cluster state is made of.

    Attributes:
        kind: What counters call it.
        stream: Where it is stored.
        subjects: Filter in that stream.
        decode: Reads a message.
        take: Updates the cluster state.
        newest: Begin with the last message of each subject.
        once: Read what is there at the start, and then no more.
        marked_seconds: Time for which the marker of a deleted key is kept for sure.
    """

    kind: str
    stream: str
    subjects: str
    decode: Decode[M]
    take: Callable[[Decoded[M]], None]
    newest: bool = True
    once: bool = False
    marked_seconds: float = math.inf


class _Complete(Exception):
    """A source that is read once has been read."""


class Following(Generic[M]):
    """Reads one source, and begins again where it was when the stream or the connection has gone."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        cluster_state: ClusterState,
        source: Source[M],
        loaded: Callable[[str], None],
        refused: Callable[[str, str], None],
    ) -> None:
        """Prepare.

        Args:
            client: Connection.
            settings: All settings.
            cluster_state: What the source updates.
            source: What to read.
            loaded: Called with its kind once everything that was there is taken.
            refused: Called with subject and reason of a message that cannot be taken.
        """
        self._client, self._timeout = client, settings.nats.request_timeout_seconds
        self._cluster_state, self._source = cluster_state, source
        self._report_loaded, self._report_refused = loaded, refused
        self._identity, self._position = "", Mark(0)
        self._loaded, self._silences = False, 0
        self._read_at = time.time()  # of the machine, which may have slept
        self._linger = _PLACES_LINGER_SECONDS if source.kind == "reservations" else _LINGER_SECONDS

    async def run(self) -> None:
        """Read until cancelled, or once."""
        with contextlib.suppress(_Complete):
            await subscription.keep(self._follow, self._waiting, pause_seconds=_AGAIN_SECONDS)

    def _waiting(self, error: Exception) -> None:
        if isinstance(error, SetBack):
            self._position = error.kept
            if self._source.kind == "reservations":
                self._cluster_state.reservations.renewed()
        log.warning("extender.waiting", extra={"stream": self._source.stream, "reason": repr(error)})

    async def _follow(self) -> None:
        source = self._source
        identity = (await stream.describe(self._client, source.stream)).identity
        if identity != self._identity or self._is_late():
            self._begin(identity)
        reader = Reader(
            self._client,
            source.stream,
            [source.subjects],
            after=self._position,
            newest=source.newest,
            timeout_seconds=self._timeout,
            bound=True,
        )
        account = LEDGER.account(f"extender {source.kind}", source.stream)
        async with Subscription(reader, source.decode, self._refuse, most=_PART, account=account) as messages:
            while True:
                timeout = _QUIET_SECONDS if self._loaded else _PATIENCE_SECONDS
                batch = await messages.read(linger_seconds=self._linger, timeout_seconds=timeout)
                if self._is_late():
                    return
                self._take(batch)
                self._position, self._read_at = messages.mark, time.time()
                self._note_loaded(batch)
                if self._loaded and source.once:
                    raise _Complete

    def _is_late(self) -> bool:
        """Tell whether markers of what has ended may have expired since the last reading."""
        return time.time() - self._read_at > self._source.marked_seconds

    def _begin(self, identity: str) -> None:
        """Read from the start: the stream is another one, or markers of what has ended may be missing."""
        kind, is_listed = self._source.kind, identity == self._identity
        if is_listed:
            log.warning("extender.read_again", extra={"stream": self._source.stream, "reason": "cut off for too long"})
        if kind == "pods" and self._identity:
            self._cluster_state.pods.renewed(time.time_ns() // 1000 if is_listed else 0)
        if kind == "reservations":
            self._cluster_state.reservations.renewed()
        self._identity, self._position, self._read_at = identity, Mark(0), time.time()

    def _take(self, batch: Batch[M]) -> None:
        for received in batch.messages:
            try:
                self._source.take(received)
            except ValueError as refused:
                self._count_refused(received.subject, str(refused))
            except Exception:  # one message must not end the answers
                REFUSED.labels(self._source.kind).inc()
                log.exception("extender.update_failed", extra={"subject": received.subject})
        TAKEN.labels(self._source.kind).inc(batch.received)

    async def _refuse(self, message: Received, reason: str) -> None:
        """Count and log it: a bucket's messages are no dead letters, and the sinks that keep the others bury them."""
        self._count_refused(message.subject, reason)

    def _count_refused(self, subject: str, reason: str) -> None:
        REFUSED.labels(self._source.kind).inc()
        self._report_refused(subject, reason)

    def _note_loaded(self, batch: Batch[M]) -> None:
        # What was counted may have expired before it was sent; then there is only silence.
        self._silences = self._silences + 1 if not batch.received and batch.pending >= 0 else 0
        if not self._loaded and (batch.pending == 0 or self._silences >= _SILENCES):
            self._loaded = True
            self._report_loaded(self._source.kind)
