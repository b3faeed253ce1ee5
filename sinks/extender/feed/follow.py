"""How the extender learns the cluster's state: buckets and streams, read in order by the bus's reader, some at a time.

Everything known is read before the first question is answered. The bucket of reports forgets a node soon after its
last report, but a silent node keeps its capacity for longer. So once the bucket is read, the stream's last report of
each node that the bucket lacks is taken, too.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from bus import subscription
from bus.client import Client
from bus.subscription import Decode, Decoded
from schemas import subject
from schemas.messages.estimate import Availability
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.market import Markets
from schemas.messages.placement import Reservations, Trust
from schemas.messages.prediction import Prediction
from schemas.settings import Settings
from schemas.subject import Names
from sinks.extender.feed.source import Following, Source
from sinks.extender.state import market
from sinks.extender.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_REPORTS = "availability"
_OVER = 100_000  # pods that are over and remembered, so that late messages do not bring them back
_MARKED_SECONDS = 3000.0  # of an ended pod; the watch lets its marker expire after an hour
_AHEAD_US = 5_000_000
_WARNED = 1000

M = TypeVar("M")


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
        self._reported = asyncio.Event()
        self._warned: set[str] = set()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        sources = self._sources()
        self._loading = len(sources)
        async with asyncio.TaskGroup() as group:
            for source in sources:
                group.create_task(self._follow(source), name=source.kind)

    async def _follow(self, source: Source[Any]) -> None:
        if source.once:
            await self._reported.wait()
        reading = Following(self._client, self._settings, self._cluster_state, source, self._loaded, self._refused)
        await reading.run()

    def _sources(self) -> list[Source[Any]]:
        names, of = self._names, subscription.of

        def bucket(
            kind: str, name: str, decode: Decode[M], take: Callable[[Decoded[M | None]], None], marked: float = math.inf
        ) -> Source[M | None]:
            decoded = subscription.or_deleted(decode)
            return Source(kind, f"KV_{name}", f"$KV.{name}.>", decoded, take, marked_seconds=marked)

        return [
            bucket(_REPORTS, names.availability_bucket, of(Availability), self._availability),
            Source("silence", names.estimates, names.of("availability", "*"), self._missing, self._silent, once=True),
            bucket("reservations", names.reservations_bucket, of(Reservations), self._reservations),
            bucket("nodes", names.nodes_bucket, of(NodeFacts), self._node),
            bucket("pods", names.pods_bucket, of(PodFacts, by_node=False), self._pod, _MARKED_SECONDS),
            # Facts of a producer that writes no buckets count too; facts that come both ways are applied once.
            Source("nodefacts", names.telemetry, names.part("*", "nodefacts"), of(NodeFacts), self._node),
            Source("podfacts", names.telemetry, names.part("*", "podfacts"), of(PodFacts), self._pod, newest=False),
            Source("prediction", names.estimates, names.of("prediction", "*"), of(Prediction), self._prediction),
            Source("market", names.estimates, names.of("market"), of(Markets, by_node=False), self._market),
            *([] if self._trusted is None else [self._trust_source(self._trusted)]),
        ]

    def _loaded(self, kind: str) -> None:
        if kind == _REPORTS:
            self._reported.set()
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

    def _missing(self, source: str, payload: bytes) -> Availability | None:
        """Decode a report of a node of which the bucket has none; None: it has one, and its reports follow."""
        row = self._cluster_state.rows.find(_name(source))
        is_there = row is not None and self._cluster_state.rows["at"][row] > 0
        return None if is_there else subscription.of(Availability)(source, payload)

    def _silent(self, received: Decoded[Availability | None]) -> None:
        oldest_us = time.time_ns() // 1000 - round(self._settings.extender.stale_seconds * 1e6)
        if received.message is not None and received.message.at_us >= oldest_us:
            self._availability(received)

    def _prediction(self, received: Decoded[Prediction]) -> None:
        self._cluster_state.predict(received.message)

    def _market(self, received: Decoded[Markets]) -> None:
        least_hours = self._settings.extender.market_hours
        self._cluster_state.trade(market.of_message(received.message, least_hours=least_hours))

    def _trust_source(self, take: Callable[[Trust], None]) -> Source[Trust]:
        def checked(received: Decoded[Trust]) -> None:
            if received.message.at_us > time.time_ns() // 1000 + _AHEAD_US:
                raise ValueError(f"{received.message.replica} is from the future: look after its clock")
            take(received.message)

        decode = subscription.of(Trust, by_node=False)
        return Source("trust", self._names.estimates, self._names.of("trust", "*"), decode, checked)

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
