"""Requeues rejected pods when room appears, instead of five minutes later.

kube-scheduler keeps a rejected pod in its unschedulable queue until a cluster event may help it. New telemetry is no
cluster event, but a change of a node's annotations is. So when a node gets room for a waiting pod that it refused, the
extender annotates the node; one node suffices to requeue all pods that an extender rejected. If other filters keep the
pod from that node, the annotation is repeated after growing pauses.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import NamedTuple

from prometheus_client import Counter

from schemas.sections import ranking
from schemas.sections.placement import Extender
from sinks.extender.candidate import Pod
from sinks.extender.evaluator import READ, Evaluator, Verdict
from sinks.extender.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 0.25
_EVALUATED = 8  # kinds of waiting pods evaluated per turn
# Of a kind, and of all beyond the first of each: with 5,000 nodes each keeps 40 kB of references to their names. One
# annotation requeues all rejected pods.
_MOST_OF_KIND, _MOST = 16, 256
_MOST_KINDS, _MOST_IN_LINE = 1000, 10_000
_MOST_UNREGISTERED = 16
_LONGEST_PAUSE = 60.0
_FORGET_SECONDS = 3600.0

REQUEUES = Counter("spazio_extender_kicks_total", "annotations that requeued rejected pods", ["outcome"])

Annotate = Callable[[str], Awaitable[None]]
Kind = tuple[str, tuple[tuple[str, float], ...]]


class WaitingKind(NamedTuple):
    """Waiting pods of one kind.

    Attributes:
        kind: Their class and requests.
        pod: One of them.
        pods: Their number.
        since: Time of the first rejection among them, on the monotonic clock.
        nodes: Nodes that refused the sampled ones.
    """

    kind: Kind
    pod: Pod
    pods: int
    since: float
    nodes: frozenset[str]


@dataclass(slots=True)
class _Rejected:
    pod: Pod
    nodes: list[str]
    unregistered: list[str]
    since: float
    requeues: int = 0
    requeued_at: float = -1e9


@dataclass(slots=True)
class _PodsOfKind:
    """Rejected pods of one kind: a sample that is evaluated, and the arrival times of the others."""

    sampled: dict[str, _Rejected] = field(default_factory=dict)
    line: dict[str, float] = field(default_factory=dict)

    @property
    def since(self) -> float:
        """Time of the first rejection among them."""
        return min((*(rejected.since for rejected in self.sampled.values()), *self.line.values()))


class WaitingPods:
    """Pods that were rejected and not placed since.

    A sample of each kind is evaluated, each pod with the nodes that refused it. The others wait in line; when a sampled
    pod is placed, the first in line takes over its nodes. Otherwise the later pods of a large batch would never be
    retried.
    """

    def __init__(self) -> None:
        self._kinds: dict[Kind, _PodsOfKind] = {}
        self._kind_of: dict[str, Kind] = {}
        self._asked_at: dict[str, float] = {}  # the last rejection
        self._sampled = 0

    def __len__(self) -> int:
        return len(self._kind_of)

    def rejected(self, verdict: Verdict) -> None:
        """Add a rejected pod."""
        pod, now = _slim(verdict.pod), time.monotonic()
        # Requests about the same nodes share their names.
        names = [sys.intern(str(name)) for name in compress(verdict.nodes.names, verdict.registered.tolist())]
        # The API may report such a node a moment later. Few are kept: a client may have invented them.
        unregistered = list(compress(verdict.nodes.names, (~verdict.registered).tolist()))[:_MOST_UNREGISTERED]
        kind = pod.workload, tuple(sorted(pod.requests.items()))
        if self._kind_of.get(pod.uid, kind) != kind:
            self.done(pod.uid)
        pods_of_kind = self._kinds.get(kind)
        if pods_of_kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                oldest = self._kinds[next(iter(self._kinds))]
                for uid in [*oldest.line, *oldest.sampled]:
                    self.done(uid)
            pods_of_kind = self._kinds[kind] = _PodsOfKind()
        if (rejected := pods_of_kind.sampled.get(pod.uid)) is not None:
            rejected.pod, rejected.nodes, rejected.unregistered = pod, names, unregistered
        elif len(pods_of_kind.sampled) < (_MOST_OF_KIND if self._sampled < _MOST else 1):
            pods_of_kind.sampled[pod.uid] = _Rejected(pod, names, unregistered, pods_of_kind.line.pop(pod.uid, now))
            self._sampled += 1
        elif pod.uid not in pods_of_kind.line:
            if len(self._kind_of) >= _MOST_IN_LINE:
                return
            pods_of_kind.line[pod.uid] = now
        self._kind_of[pod.uid], self._asked_at[pod.uid] = kind, now

    def done(self, uid: str) -> None:
        """Remove a pod that is placed or deleted."""
        kind = self._kind_of.pop(uid, None)
        if kind is None:
            return
        del self._asked_at[uid]
        pods_of_kind = self._kinds[kind]
        removed = pods_of_kind.sampled.pop(uid, None)
        if removed is None:
            del pods_of_kind.line[uid]
        elif pods_of_kind.line:
            successor = next(iter(pods_of_kind.line))
            pods_of_kind.sampled[successor] = _Rejected(
                removed.pod, removed.nodes, removed.unregistered, pods_of_kind.line.pop(successor)
            )
        else:
            self._sampled -= 1
            if not pods_of_kind.sampled:
                del self._kinds[kind]

    def longest(self, most: int) -> list[WaitingKind]:
        """Return the kinds that have waited longest, at most so many."""
        since = {kind: waiting.since for kind, waiting in self._kinds.items()}
        return [self._waiting(kind, since[kind]) for kind in sorted(since, key=lambda kind: since[kind])[:most]]

    def longest_wait(self, now: float) -> float:
        """Return how long the pod that waits longest has waited, in seconds; 0: none waits."""
        return now - min((waiting.since for waiting in self._kinds.values()), default=now)

    def _waiting(self, kind: Kind, since: float) -> WaitingKind:
        pods_of_kind = self._kinds[kind]
        sampled = list(pods_of_kind.sampled.values())
        nodes = frozenset[str]().union(*(rejected.nodes for rejected in sampled))
        return WaitingKind(kind, sampled[0].pod, len(sampled) + len(pods_of_kind.line), since, nodes)

    async def run(self, settings: Extender, cluster_state: ClusterState, annotate: Annotate) -> None:
        """Annotate nodes that have room for a waiting pod, until cancelled.

        Args:
            settings: The least time between annotations.
            cluster_state: The state of nodes and pods; bound and ended pods are removed from the queue.
            annotate: Annotates a node; if it raises, the failure is counted and retried.
        """
        evaluator = Evaluator(settings, cluster_state)
        last = -1e9
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            now = time.monotonic()
            if not self._kinds or now - last < settings.kick_seconds:
                continue
            self.forget(cluster_state)
            node = ""
            try:
                candidate = self._next(evaluator, cluster_state, settings.kick_seconds, now)
                if candidate is None:
                    continue
                last = now
                waiting, node = candidate
                waiting.requeues, waiting.requeued_at = waiting.requeues + 1, now
                await annotate(node)
            except Exception as error:  # noqa: BLE001 # the next turn retries after any error
                REQUEUES.labels("failed").inc()
                log.warning("requeue.annotation_failed", extra={"node": node, "reason": str(error)})
            else:
                REQUEUES.labels("done").inc()

    def forget(self, cluster_state: ClusterState) -> None:
        """Remove pods that are bound or gone, and those that the scheduler has not asked about for an hour."""
        oldest = time.monotonic() - _FORGET_SECONDS
        pods = cluster_state.pods
        for uid, asked_at in list(self._asked_at.items()):
            if uid in pods.bound or uid in pods.over or asked_at < oldest:
                self.done(uid)

    def _next(
        self, evaluator: Evaluator, cluster_state: ClusterState, pause: float, now: float
    ) -> tuple[_Rejected, str] | None:
        """Return a waiting pod and a node that would take it now; kinds take turns, and so do the pods of a kind."""
        evaluated = 0
        for kind, pods_of_kind in list(self._kinds.items()):
            due = next((item for item in pods_of_kind.sampled.items() if not _resting(item[1], pause, now)), None)
            if due is None:
                continue
            uid, waiting = due
            # Moved to the end, so that others are evaluated first next time.
            self._kinds[kind] = self._kinds.pop(kind)
            pods_of_kind.sampled[uid] = pods_of_kind.sampled.pop(uid)
            names = waiting.nodes + waiting.unregistered
            registered = cluster_state.registered(cluster_state.rows.rows(names))
            waiting.nodes = list(compress(names, registered.tolist()))
            waiting.unregistered = [name for name in waiting.unregistered if name not in waiting.nodes]
            if not waiting.nodes:
                continue
            verdict = evaluator.evaluate(waiting.pod, waiting.nodes, time.time_ns() // 1000)
            best = verdict.best()
            if best is not None:
                return waiting, waiting.nodes[best]
            evaluated += 1
            if evaluated >= _EVALUATED:
                break
        return None


def _resting(waiting: _Rejected, pause: float, now: float) -> bool:
    return now - waiting.requeued_at < min(_LONGEST_PAUSE, pause * 2.0 ** min(waiting.requeues, 10) / 2)


def _slim(pod: Pod) -> Pod:
    """Return a pod with the labels and annotations that count in a verdict; others can have 256 KiB for each pod."""
    return replace(pod, labels=_read(pod.labels), annotations=_read(pod.annotations))


def _read(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name in READ and len(text) <= ranking.LONGEST}
