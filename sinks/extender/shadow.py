"""Shadow mode: what the extender would have decided, beside what kube-scheduler then did without it.

A decision waits until the API shows where its pod was bound. It is then published with that node, and with the reasons
for which the policy refuses the node, as the node was when the scheduler asked.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.messages.placement import Decision
from schemas.sections.placement import Extender
from sinks.extender import decision, pod
from sinks.extender.candidate import Pod
from sinks.extender.evaluator import Evaluator, Verdict
from sinks.extender.placement import DECISIONS, Bind, Soon, now_us
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.web.selector import Filtered, Selector

_MOST = 1000
_PATIENCE_SECONDS = 300.0
_NOTE = "shadow mode: every node passes, and nothing is reserved"


class _Waiting(NamedTuple):
    """A decision, and of its verdict the nodes and a bit for each that a reason refuses: a thousand may wait."""

    decision: Decision
    names: Sequence[str]
    reasons: Mapping[str, NDArray[np.uint8]]
    since: float

    @classmethod
    def of(cls, message: Decision, verdict: Verdict, since: float) -> "_Waiting":
        """Keep what is needed once the pod is bound; requests about the same nodes share their names."""
        names = [sys.intern(str(name)) for name in verdict.nodes.names]
        return cls(message, names, {reason: np.packbits(mask) for reason, mask in verdict.reasons.items()}, since)

    def breaks(self, node: str) -> list[str]:
        """Return the reasons for which the policy refuses a node."""
        if node not in self.names:
            return []
        index = self.names.index(node)
        return [reason for reason, bits in self.reasons.items() if np.unpackbits(bits)[index]]


class Ledger:
    """Decisions that wait for their pods to be bound."""

    def __init__(self, publish: Callable[[Decision], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._publish, self._clock = publish, clock
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def decided(self, message: Decision, verdict: Verdict) -> None:
        """Let a decision wait. An earlier one of the pod came to nothing, so it is published as it is."""
        self._give_up(message.pod)
        if len(self._waiting) >= _MOST:
            self._give_up(next(iter(self._waiting)))
        self._waiting[message.pod] = _Waiting.of(message, verdict, self._clock())

    def bound(self, uid: str, node: str) -> None:
        """Publish a pod's decision with the node that it was bound to."""
        if (waiting := self._waiting.pop(uid, None)) is None:
            return
        self._publish(waiting.decision.model_copy(update={"bound": node, "breaks": waiting.breaks(node)}))

    def withdraw(self, uid: str) -> None:
        """Drop the decision on a pod that is placed after all."""
        self._waiting.pop(uid, None)

    def lapse(self) -> None:
        """Publish decisions whose pods were not bound for long."""
        while self._waiting:
            uid, first = next(iter(self._waiting.items()))
            if self._clock() - first.since < _PATIENCE_SECONDS:
                return
            self._give_up(uid)

    def _give_up(self, uid: str) -> None:
        if (waiting := self._waiting.pop(uid, None)) is not None:
            self._publish(waiting.decision)


class ShadowSelector(Selector):
    """Lets everything pass, and decides as if once the answer is on its way."""

    def __init__(
        self,
        settings: Extender,
        cluster_state: ClusterState,
        ledger: Ledger,
        bind: Bind,
        soon: Soon,
        clock: Callable[[], int] = now_us,
    ) -> None:
        """Prepare.

        Args:
            settings: The extender's settings.
            cluster_state: Nodes and pods.
            ledger: Receives decisions.
            bind: Binds (namespace, name, uid, node); returns the error, empty: none.
            soon: Calls a function once the answer is on its way.
            clock: Returns the time in microseconds since the epoch.
        """
        self._evaluator, self._ledger = Evaluator(settings, cluster_state), ledger
        self._bind, self._soon, self._clock = bind, soon, clock

    async def filter(self, raw: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Return all nodes."""
        began, asked = time.perf_counter(), pod.parse(raw)
        self._soon(partial(self._decide, asked, names, began))
        return Filtered(names)

    async def prioritize(self, _raw: Mapping[str, Any], _names: Sequence[str]) -> Mapping[str, int]:
        """Return no scores."""
        return {}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind a pod; returns the error, empty: none."""
        return await self._bind(namespace, name, uid, node)

    async def preempt(
        self, _raw: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return all nodes."""
        return victims

    def _decide(self, asked: Pod, names: Sequence[str], began: float) -> None:
        verdict = self._evaluator.evaluate(asked, names, self._clock())
        DECISIONS.labels(verdict.outcome).inc()
        message = decision.make(
            verdict,
            index=verdict.best() if verdict.strategies else None,
            mode="shadow",
            note=_NOTE,
            at_us=self._clock(),
            seconds=time.perf_counter() - began,
        )
        self._ledger.decided(message, verdict)
