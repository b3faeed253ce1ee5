"""How the extender learns the cluster's state: buckets and streams, read in order by the bus's reader, some at a time.

Everything known is read before the first question is answered. After that each message is taken as it comes, in small
parts, so that a question does not wait behind thousands of them. The client's own watch of a bucket is not used: it
loses messages when a connection breaks, and says nothing.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client import Counter

from bus import stream, subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.reading.setback import Mark, SetBack
from bus.subscription import Batch, Decode, Decoded, Subscription
from schemas import subject
from schemas.messages.estimate import Availability
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.market import Markets
from schemas.messages.placement import Reservations, Trust
from schemas.messages.prediction import Prediction
from schemas.settings import Settings
from schemas.subject import Names
from sinks.extender.state import market
from sinks.extender.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_PART = 25  # messages taken before others get a turn
_OVER = 100_000  # pods that are over and remembered, so that late messages do not bring them back
_LINGER_SECONDS = 0.02  # one by one they would cost as much as the answers
_PLACES_LINGER_SECONDS = 0.002  # what other replicas hold is to be known at once
_PATIENCE_SECONDS, _SILENCES = 0.5, 4
_AGAIN_SECONDS = 0.5
_AHEAD_US = 5_000_000
_WARNED = 1000

TAKEN = Counter("spazio_extender_messages_total", "messages taken, by kind", ["kind"])
REFUSED = Counter("spazio_extender_refused_total", "messages that could not be read, by kind", ["kind"])

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class _Source(Generic[M]):
    """One kind of message that the cluster state is made of.

    Attributes:
        kind: What counters call it.
        stream: Where it is stored.
        subjects: Filter in that stream.
        decode: Reads a message.
        take: Updates the cluster state.
        newest: Begin with the last message of each subject.
    """

    kind: str
    stream: str
    subjects: str
    decode: Decode[M]
    take: Callable[[Decoded[M]], None]
    newest: bool = True


class Followed:
    """Keeps a cluster_state current.

    Attributes:
        ready: Everything that was there at the start is known.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        cluster_state: ClusterState,
        bound: Callable[[str, str], None] = lambda _uid, _node: None,
        binding: Callable[[PodFacts], None] = lambda _facts: None,
        trusted: Callable[[Trust], None] | None = None,
    ) -> None:
        """Describe what to follow; nothing is sent before `run`.

        Args:
            client: Connection.
            settings: All settings.
            cluster_state: What is kept current.
            bound: Called with UID and node of each pod that is bound.
            binding: Called when a pod is bound after the start, before the cluster state has it.
            trusted: Called with what replicas of the extender publish of their promises; None: it is not read.
        """
        self._bound, self._binding, self._trusted = bound, binding, trusted
        self._client, self._settings, self._cluster_state = client, settings, cluster_state
        self._names = Names(settings.prefix)
        self._loading = 0
        self._warned: set[str] = set()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        sources = self._sources()
        self._loading = len(sources)
        async with asyncio.TaskGroup() as group:
            for source in sources:
                work = _Following(
                    self._client, self._settings, self._cluster_state, source, self._loaded, self._refused
                )
                group.create_task(work.run(), name=source.kind)

    def _sources(self) -> list[_Source[Any]]:
        names, of = self._names, subscription.of

        def bucket(
            kind: str, name: str, decode: Decode[M], take: Callable[[Decoded[M | None]], None]
        ) -> _Source[M | None]:
            return _Source(kind, f"KV_{name}", f"$KV.{name}.>", subscription.or_deleted(decode), take)

        return [
            bucket("availability", names.availability_bucket, of(Availability), self._availability),
            bucket("reservations", names.reservations_bucket, of(Reservations), self._reservations),
            bucket("nodes", names.nodes_bucket, of(NodeFacts), self._node),
            bucket("pods", names.pods_bucket, of(PodFacts, by_node=False), self._pod),
            # Facts of a producer that writes no buckets count too; facts that come both ways are applied once.
            _Source("nodefacts", names.telemetry, names.part("*", "nodefacts"), of(NodeFacts), self._node),
            _Source("podfacts", names.telemetry, names.part("*", "podfacts"), of(PodFacts), self._pod, newest=False),
            _Source("prediction", names.estimates, names.of("prediction", "*"), of(Prediction), self._prediction),
            _Source("market", names.estimates, names.of("market"), of(Markets, by_node=False), self._market),
            *([] if self._trusted is None else [self._trust_source(self._trusted)]),
        ]

    def _loaded(self) -> None:
        self._loading -= 1
        if not self._loading:
            self.ready.set()

    def _refused(self, subject: str, reason: str) -> None:
        """Say it once for each subject; a node whose clock is wrong says the same every second."""
        first = subject not in self._warned and len(self._warned) < _WARNED
        if first:
            self._warned.add(subject)
        level = logging.WARNING if first else logging.DEBUG
        log.log(level, "extender.refused", extra={"subject": subject, "reason": reason})

    def _availability(self, received: Decoded[Availability | None]) -> None:
        availability = received.message
        if availability is None:  # one that expires leaves no message; its values grow old by themselves
            return
        if availability.at_us > time.time_ns() // 1000 + _AHEAD_US:
            raise ValueError(f"{availability.node} reports from the future: look after its clock")
        self._cluster_state.report(availability)

    def _prediction(self, received: Decoded[Prediction]) -> None:
        self._cluster_state.predict(received.message)

    def _market(self, received: Decoded[Markets]) -> None:
        least_hours = self._settings.extender.market_hours
        self._cluster_state.trade(market.of_message(received.message, least_hours=least_hours))

    def _trust_source(self, take: Callable[[Trust], None]) -> _Source[Trust]:
        def checked(received: Decoded[Trust]) -> None:
            if received.message.at_us > time.time_ns() // 1000 + _AHEAD_US:
                raise ValueError(f"{received.message.replica} is from the future: look after its clock")
            take(received.message)

        decode = subscription.of(Trust, by_node=False)
        return _Source("trust", self._names.estimates, self._names.of("trust", "*"), decode, checked)

    def _node(self, received: Decoded[NodeFacts | None]) -> None:
        if received.message is not None:
            self._cluster_state.describe(received.message)
        else:
            self._cluster_state.leave(_name(received.subject))

    def _pod(self, received: Decoded[PodFacts | None]) -> None:
        uid, facts = _name(received.subject), received.message
        if facts is not None:
            uid = facts.pod
            pods = self._cluster_state.pods
            if facts.node != UNBOUND and self.ready.is_set() and pods.is_new(facts):
                self._binding(facts)
            pods.hear(facts)
            if facts.node != UNBOUND:
                self._bound(uid, facts.node)
        else:
            self._cluster_state.pods.forget(uid, time.time_ns() // 1000 if self.ready.is_set() else None)
        self._cluster_state.reservations.settle(uid)
        self._cluster_state.pods.trim(_OVER)

    def _reservations(self, received: Decoded[Reservations | None]) -> None:
        node, reservations = _name(received.subject), self._cluster_state.reservations
        if reservations.sequence(self._cluster_state.rows.row(node)) >= received.sequence:
            return  # we wrote it
        if received.message is not None:
            reservations.hear(received.message, received.sequence)
        else:
            reservations.gone(node, received.sequence)


def _name(source: str) -> str:
    return subject.name(source.rpartition(".")[2])


class _Following(Generic[M]):
    """Reads one source, and begins again where it was when the stream or the connection has gone."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        cluster_state: ClusterState,
        source: _Source[M],
        loaded: Callable[[], None],
        refused: Callable[[str, str], None],
    ) -> None:
        self._client, self._timeout = client, settings.nats.request_timeout_seconds
        self._cluster_state, self._source = cluster_state, source
        self._report_loaded, self._report_refused = loaded, refused
        self._identity, self._position = "", Mark(0)
        self._loaded, self._silences = False, 0
        self._linger = _PLACES_LINGER_SECONDS if source.kind == "reservations" else _LINGER_SECONDS

    async def run(self) -> None:
        """Read until cancelled."""
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
        if identity != self._identity:
            if source.kind == "pods" and self._identity:
                self._cluster_state.pods.renewed()
            self._identity, self._position = identity, Mark(0)
            if source.kind == "reservations":
                self._cluster_state.reservations.renewed()
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
                timeout = None if self._loaded else _PATIENCE_SECONDS
                batch = await messages.read(linger_seconds=self._linger, timeout_seconds=timeout)
                self._take(batch)
                self._position = messages.mark
                self._note_loaded(batch)

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
            self._report_loaded()
