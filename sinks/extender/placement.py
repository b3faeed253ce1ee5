"""Answers kube-scheduler: evaluate the nodes, write a reservation, reply.

The extender protocol has no message that tells the chosen node. kube-scheduler asks for a filter, then for scores, and
binds later, while it already asks about the next pod. In argmax mode the extender therefore chooses the node and writes
the reservation before it answers the filter call, and prioritize gives that node the full score. If the scheduler asks
about a pod again, the earlier attempt has failed, so its reservation is released first. Calls are answered one at a
time, so that each sees the reservations of the one before. A node of which nothing is known may pass, but nothing is
reserved there. Reservations of pods that the API has not reported are limited on each node: beyond, the next best node
is chosen.

In graded mode there are no reservations, because the chosen node is unknown; a pod counts once the API shows it bound.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import Counter

from schemas.messages.placement import Decision, Held
from schemas.sections.placement import Extender
from sinks.extender import decision, pod
from sinks.extender.candidate import Pod
from sinks.extender.evaluator import Evaluator, Verdict
from sinks.extender.eviction import Evictions
from sinks.extender.requeue import WaitingPods
from sinks.extender.state.cluster_state import UNKNOWN, ClusterState
from sinks.extender.state.store import Conflict, ReservationStore, Unavailable
from sinks.extender.web.selector import Filtered, Selector

log = logging.getLogger(__name__)

_ATTEMPTS = 50  # each conflict brings the reservations of one node up to date
_TOP = 10
_WARN_SECONDS = 10.0
_NOT_HELD = "no place is held, NATS does not answer"
_FULL_ELSEWHERE = "a pod goes to a node without telemetry, since those with telemetry take no more of its kind"
_NOT_KNOWN = "neither the API nor telemetry knows a node that passes: nothing is reserved"

DECISIONS = Counter("spazio_extender_decisions_total", "decisions", ["outcome"])
CONFLICTS = Counter("spazio_extender_conflicts_total", "reservations that another replica wrote first")
UNREPORTED = Counter(
    "spazio_extender_unconfirmed_refused_total",
    "pods that wait because too many that the cluster watch has not reported hold room",
)
UNGUARDED = Counter(
    "spazio_extender_unguaranteed_total", "pods placed on a node without telemetry, or without a reservation"
)

Bind = Callable[[str, str, str, str], Awaitable[str]]
Soon = Callable[[Callable[[], None]], object]


def now_us() -> int:
    """Return the time in microseconds since the epoch."""
    return time.time_ns() // 1000


class _Unreported(Unavailable):
    """The API has not reported the pod, and too many such pods hold room."""


class PlacementSelector(Selector):
    """Answers kube-scheduler from the cluster state."""

    def __init__(
        self,
        settings: Extender,
        cluster_state: ClusterState,
        store: ReservationStore,
        waiting: WaitingPods,
        publish: Callable[[Decision], None],
        bind: Bind,
        clock: Callable[[], int] = now_us,
        soon: Soon | None = None,
    ) -> None:
        """Prepare.

        Args:
            settings: The extender's settings.
            cluster_state: Nodes, pods and reservations.
            store: Writes reservations.
            waiting: Keeps the rejected pods.
            publish: Publishes a decision.
            bind: Binds (namespace, name, uid, node); returns the error, empty: none.
            clock: Returns the time in microseconds since the epoch.
            soon: Calls a function once the answer is on its way; default: the event loop does.
        """
        self._settings, self._cluster_state, self._store = settings, cluster_state, store
        self._waiting, self._publish, self._bind = waiting, publish, bind
        self._evictions = Evictions(cluster_state, settings.settle_seconds)
        self._evaluator = Evaluator(settings, cluster_state, self._evictions.relieve)
        self._argmax = settings.mode == "argmax"
        self._lock = asyncio.Lock()
        self._warned_at, self._clock = 0.0, clock
        self._soon = soon or asyncio.get_running_loop().call_soon

    async def filter(self, raw: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Return the nodes that a pod may go to; in argmax mode, room is reserved when this returns."""
        began, asked = time.perf_counter(), pod.parse(raw)
        async with self._lock:
            try:
                verdict, index, note = await self._decide(asked, names)
            except Unavailable as error:
                name = f"{asked.namespace}/{asked.name}"
                if not isinstance(error, _Unreported):  # those are counted; a client could fill the log with them
                    log.error("reservation.write_failed", extra={"pod": name, "reason": str(error)})  # noqa: TRY400 # no trace is needed
                return Filtered([], error=f"spazio: no place can be held, so the pod waits: {error}")
        response = _answer(verdict)
        # The scheduler does not have to wait for metrics and messages.
        self._soon(partial(self._record, verdict, index, note, time.perf_counter() - began))
        return response

    async def prioritize(self, raw: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Return scores from 0 to 10; absent nodes get 0."""
        if not self._argmax:
            return _graded(self._evaluator.evaluate(pod.parse(raw), names, self._clock()))
        held_node = self._held_node(raw)
        if held_node is not None and held_node in names:
            return {held_node: _TOP}
        # Another extender has refused our choice, or another replica's reservation has not reached us yet.
        verdict, index = await self._retry(pod.parse(raw), names)
        return _graded(verdict) if index is None else {names[index]: _TOP}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind a pod; returns the error, empty: none."""
        return await self._bind(namespace, name, uid, node)

    async def preempt(
        self, raw: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return the nodes, with the victims' UIDs, on which the pod fits after their eviction."""
        asked, now_us = pod.parse(raw), self._clock()
        self._evictions.forget(asked.uid)
        verdict = self._evaluator.evaluate(asked, list(victims), now_us)
        return self._evictions.agree(verdict, victims, now_us)

    def _held_node(self, raw: Mapping[str, Any]) -> str | None:
        """Return the node with the pod's reservation; reads only the pod's UID."""
        metadata = raw.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
        row = self._cluster_state.reservations.row_of(uid) if isinstance(uid, str) else None
        return None if row is None else self._cluster_state.rows.names[row]

    async def _release_stored(self, row: int | None, uid: str) -> None:
        """Remove the reservation of an earlier attempt from the bucket, for a pod that has no new one."""
        if row is not None:
            # This replica does not count it any more; the others learn of it now, or when it lapses.
            with contextlib.suppress(Conflict, Unavailable):
                await self._store.release(self._cluster_state.rows.names[row], uid, self._clock())

    async def _decide(self, asked: Pod, names: Sequence[str]) -> tuple[Verdict, int | None, str]:
        """Evaluate until a reservation is written or no node passes; returns verdict, node index and note.

        Raises:
            Unavailable: The reservation cannot be written, and the settings let pods wait then; or too many pods that
                the API has not reported hold room.
        """
        earlier: int | None = None
        for _ in range(_ATTEMPTS):
            now_us = self._clock()
            # An earlier attempt of this pod has failed; its reservation is void.
            if (row := self._cluster_state.reservations.release(asked.uid)) is not None:
                earlier = row
            self._cluster_state.reservations.lapse(now_us)
            verdict = self._evaluator.evaluate(asked, names, now_us)
            best = verdict.best() if self._argmax and verdict.strategies else None
            if best is None or not verdict.registered[best]:
                await self._release_stored(earlier, asked.uid)
                return verdict, None, "" if best is None else _NOT_KNOWN
            try:
                best = self._free(asked.uid, verdict, best)
            except _Unreported:
                UNREPORTED.inc()
                await self._release_stored(earlier, asked.uid)
                raise
            node = names[best]
            try:
                await self._store.hold(node, asked.uid, self._held(asked, now_us), now_us)
            except Conflict:
                CONFLICTS.inc()
            except Unavailable as error:
                if self._settings.failure == "closed":
                    raise
                UNGUARDED.inc()
                self._warn(str(error))
                return verdict, None, _NOT_HELD
            else:
                return verdict, best, ""
        raise Unavailable(f"{_ATTEMPTS} attempts met other replicas' writes")

    def _free(self, uid: str, verdict: Verdict, best: int) -> int:
        """Return the best node that may hold a place for a pod; one without telemetry only if the best is one.

        Raises:
            _Unreported: None may.
        """
        refusal = self._cluster_state.reservations.refusal
        if not (reason := refusal(uid, int(verdict.rows[best]))):
            return best
        unheard = verdict.states == UNKNOWN
        alike = verdict.passing & verdict.registered & (unheard == unheard[best])  # these come first
        for index in np.argsort(-verdict.order(), kind="stable")[: np.count_nonzero(alike)].tolist():
            if not refusal(uid, int(verdict.rows[index])):
                return int(index)
        raise _Unreported(reason)

    async def _retry(self, asked: Pod, names: Sequence[str]) -> tuple[Verdict, int | None]:
        async with self._lock:
            try:
                verdict, index, _ = await self._decide(asked, names)
            except Unavailable as error:
                self._warn(str(error))
                return self._evaluator.evaluate(asked, names, self._clock()), None
        return verdict, index

    def _held(self, asked: Pod, now_us: int) -> Held:
        seconds, pods = self._settings.reservation_seconds, self._cluster_state.pods
        if pods.heard_us and asked.uid not in pods.pending:  # the watch may be away: see `unconfirmed`
            seconds = max(seconds, self._settings.stale_seconds)
        return Held(
            namespace=asked.namespace,
            name=asked.name,
            workload=asked.workload,
            at_us=max(now_us, self._cluster_state.reservations.earliest(asked.uid)),
            until_us=now_us + round(seconds * 1e6),
            requests=dict(asked.requests),
        )

    def _record(self, verdict: Verdict, index: int | None, note: str, seconds: float) -> None:
        """Publish the decision, and remember the pod if it was rejected."""
        outcome = verdict.outcome
        DECISIONS.labels(outcome).inc()
        if outcome == "rejected":
            self._waiting.rejected(verdict)
        else:
            self._waiting.done(verdict.pod.uid)
        # Nodes without telemetry come last, so if the best is one, the pod goes to one. What is not held is counted.
        best = verdict.best() if outcome == "placed" and note != _NOT_HELD else None
        if best is not None and verdict.states[best] == UNKNOWN:
            UNGUARDED.inc()
            self._warn(verdict.note or _FULL_ELSEWHERE)
        message = decision.make(
            verdict,
            index=index,
            mode=self._settings.mode,
            note=note,
            at_us=self._clock(),
            seconds=seconds,
        )
        self._publish(message)

    def _warn(self, reason: str) -> None:
        if time.monotonic() - self._warned_at >= _WARN_SECONDS:
            self._warned_at = time.monotonic()
            log.error("guarantee.suspended", extra={"reason": reason})


def _graded(verdict: Verdict) -> dict[str, int]:
    if not verdict.strategies:
        return {}
    grades = (verdict.total * (_TOP / 100)).round().astype(int)
    grades[~verdict.passing | (verdict.states == UNKNOWN)] = 0
    return {name: grade for name, grade in zip(verdict.nodes.names, grades.tolist(), strict=True) if grade}


def _answer(verdict: Verdict) -> Filtered:
    names = verdict.nodes.names
    if verdict.passing.all():
        return Filtered(names)
    passing = [name for name, passes in zip(names, verdict.passing.tolist(), strict=True) if passes]
    # kube-scheduler tries to evict pods where that might help, but only by its own filters, which the node passes.
    refused: dict[str, str] = {}
    for reason, mask in verdict.reasons.items():
        for index in mask.nonzero()[0].tolist():
            name = names[index]
            refused[name] = f"{refused[name]}; {reason}" if name in refused else f"spazio: {reason}"
    return Filtered(passing, unresolvable=refused)
