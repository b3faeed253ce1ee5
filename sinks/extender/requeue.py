"""The kick: pods that were rejected are tried again when room appears, and not five minutes later.

kube-scheduler puts a rejected pod aside until something happens in the cluster, and a change of what telemetry says is
nothing that happens to it. An annotation of a node is. So while pods wait, and a node that turned one of them down
has room for it, that node is annotated; any node will do for all pods that an extender rejected. If it does not help,
since other filters keep the pod from that node, it is said again after a pause that grows.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge

from schemas.sections.placement import Extender
from sinks.extender.candidate import Pod
from sinks.extender.evaluator import Judge, Verdict
from sinks.extender.state.cluster_state import Board

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.25
_LOOKED_AT = 8  # kinds of waiting pods looked at in one turn
_MOST_OF_KIND, _MOST = 16, 256  # each keeps the names of its nodes; one kick has all rejected pods tried again
_MOST_KINDS, _MOST_IN_LINE = 1000, 10_000
_LONGEST_PAUSE = 60.0
_FORGET_SECONDS = 3600.0

KICKS = Counter("spazio_extender_kicks_total", "annotations that had rejected pods tried again", ["outcome"])
WAITING = Gauge("spazio_extender_waiting_pods", "rejected pods that are waiting")

Annotate = Callable[[str], Awaitable[None]]
Kind = tuple[str, tuple[tuple[str, float], ...]]


@dataclass(slots=True)
class _Rejected:
    pod: Pod
    nodes: list[str]
    since: float
    kicks: int = 0
    kicked: float = -1e9


@dataclass(slots=True)
class _Alike:
    """Rejected pods of one kind: those that are looked at, and since when others stand in line behind them."""

    looked_at: dict[str, _Rejected] = field(default_factory=dict)
    line: dict[str, float] = field(default_factory=dict)


class Waiting:
    """Pods that were rejected and not placed since.

    Some of each kind are looked at, each with the nodes that turned it down. The others stand in line, and whoever is
    placed leaves its nodes to the first of them: the last pods of a crowd would have nobody to speak for them.
    """

    def __init__(self) -> None:
        self._kinds: dict[Kind, _Alike] = {}
        self._kind_of: dict[str, Kind] = {}
        self._looked_at = 0

    def __len__(self) -> int:
        return len(self._kind_of)

    def rejected(self, verdict: Verdict) -> None:
        """Take note of a pod that no node would do for."""
        pod, names, now = verdict.pod, list(verdict.nodes.names), time.monotonic()
        kind = pod.workload, tuple(sorted(pod.requests.items()))
        if self._kind_of.get(pod.uid, kind) != kind:
            self.done(pod.uid)
        alike = self._kinds.get(kind)
        if alike is None:
            if len(self._kinds) >= _MOST_KINDS:
                oldest = self._kinds[next(iter(self._kinds))]
                for uid in [*oldest.line, *oldest.looked_at]:
                    self.done(uid)
            alike = self._kinds[kind] = _Alike()
        if (known := alike.looked_at.get(pod.uid)) is not None:
            known.pod, known.nodes = pod, names
        elif len(alike.looked_at) < (_MOST_OF_KIND if self._looked_at < _MOST else 1):
            alike.looked_at[pod.uid] = _Rejected(pod, names, alike.line.pop(pod.uid, now))
            self._looked_at += 1
        elif pod.uid not in alike.line:
            if len(self._kind_of) >= _MOST_IN_LINE:
                return
            alike.line[pod.uid] = now
        self._kind_of[pod.uid] = kind

    def done(self, uid: str) -> None:
        """Take note of a pod that is placed or gone."""
        kind = self._kind_of.pop(uid, None)
        if kind is None:
            return
        alike = self._kinds[kind]
        gone = alike.looked_at.pop(uid, None)
        if gone is None:
            del alike.line[uid]
        elif alike.line:
            heir = next(iter(alike.line))
            alike.looked_at[heir] = _Rejected(gone.pod, gone.nodes, alike.line.pop(heir))
        else:
            self._looked_at -= 1
            if not alike.looked_at:
                del self._kinds[kind]

    async def run(self, settings: Extender, board: Board, annotate: Annotate) -> None:
        """Kick whenever it may help, until cancelled.

        Args:
            settings: How often.
            board: What is known; pods that it knows to be bound or over do not wait.
            annotate: Annotates a node; may raise, which is counted and tried again.
        """
        judge = Judge(settings, board)
        last = -1e9
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._forget(board)
            WAITING.set(len(self))
            now = time.monotonic()
            if not self._kinds or now - last < settings.kick_seconds:
                continue
            node = ""
            try:
                if (found := self._find(judge, board, settings.kick_seconds, now)) is None:
                    continue
                last = now
                waiting, node = found
                waiting.kicks, waiting.kicked = waiting.kicks + 1, now
                await annotate(node)
            except Exception as error:  # noqa: BLE001 # whatever went wrong, the next turn tries again
                KICKS.labels("failed").inc()
                log.warning("kick.failed", extra={"node": node, "reason": str(error)})
            else:
                KICKS.labels("done").inc()

    def _forget(self, board: Board) -> None:
        oldest = time.monotonic() - _FORGET_SECONDS
        pods = board.pods
        for uid, kind in list(self._kind_of.items()):
            alike = self._kinds[kind]
            since = alike.line[uid] if uid in alike.line else alike.looked_at[uid].since
            if uid in pods.known or uid in pods.over or since < oldest:
                self.done(uid)

    def _find(self, judge: Judge, board: Board, pause: float, now: float) -> tuple[_Rejected, str] | None:
        """Return a waiting pod and a node that would do for it now; kinds take turns, and so do a kind's pods."""
        looked = 0
        for kind, alike in list(self._kinds.items()):
            found = next((item for item in alike.looked_at.items() if not _resting(item[1], pause, now)), None)
            if found is None:
                continue
            uid, waiting = found
            # The others' turn comes first next time.
            self._kinds[kind] = self._kinds.pop(kind)
            alike.looked_at[uid] = alike.looked_at.pop(uid)
            waiting.nodes = [node for node in waiting.nodes if board.knows(node)]
            if not waiting.nodes:
                continue
            verdict = judge.judge(waiting.pod, waiting.nodes, time.time_ns() // 1000)
            best = verdict.best()
            if best is not None:
                return waiting, waiting.nodes[best]
            looked += 1
            if looked >= _LOOKED_AT:
                break
        return None


def _resting(waiting: _Rejected, pause: float, now: float) -> bool:
    return now - waiting.kicked < min(_LONGEST_PAUSE, pause * 2.0 ** min(waiting.kicks, 10) / 2)
