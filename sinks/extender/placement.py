"""Placing pods: judge, hold a place, answer.

kube-scheduler has no word for "I took it": it asks which nodes will do, then which are best, and binds on its own
time, while it asks about the next pod already. So in argmax mode the choice is made, and its place held, before
filter is answered; prioritize gives that node the whole score. A pod that is asked about again has failed on its way,
so its place is given back first. Questions are answered one at a time: each sees what the one before has taken.

In graded mode nothing is held, since nobody tells where the pod goes; it counts once the API shows it bound.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import Counter

from schemas.messages.placement import Decision, Held, Outcome
from schemas.sections.placement import Extender
from sinks.extender import decision, eviction, pod
from sinks.extender.candidate import Pod
from sinks.extender.evaluator import ALL_UNHEARD, Judge, Verdict
from sinks.extender.requeue import Waiting
from sinks.extender.state.cluster_state import UNKNOWN, Board
from sinks.extender.state.store import Conflict, Places, Unavailable
from sinks.extender.web.selector import Filtered, Placer

log = logging.getLogger(__name__)

_ATTEMPTS = 50  # each teaches the places of one node
_TOP = 10
_LOUD_SECONDS = 10.0

DECISIONS = Counter("spazio_extender_decisions_total", "decisions", ["outcome"])
CONFLICTS = Counter("spazio_extender_conflicts_total", "places that another replica had taken first")
UNGUARDED = Counter("spazio_extender_unguaranteed_total", "pods passed without telemetry or without a place held")

Bind = Callable[[str, str, str, str], Awaitable[str]]
Soon = Callable[[Callable[[], None]], object]


def now_us() -> int:
    """Return the time of the day in microseconds."""
    return time.time_ns() // 1000


class Placing(Placer):
    """Answers kube-scheduler from the board."""

    def __init__(
        self,
        settings: Extender,
        board: Board,
        store: Places,
        waiting: Waiting,
        say: Callable[[Decision], None],
        bind: Bind,
        clock: Callable[[], int] = now_us,
        soon: Soon | None = None,
    ) -> None:
        """Prepare.

        Args:
            settings: How pods are placed.
            board: What is known.
            store: Where places are held.
            waiting: Told of pods that found no node, and of those that did.
            say: Takes decisions.
            bind: Binds (namespace, name, uid, node); returns what went wrong.
            clock: The time of the day in microseconds.
            soon: Calls a function once the answer is on its way; default: the event loop does.
        """
        self._settings, self._board, self._store = settings, board, store
        self._waiting, self._say, self._bind = waiting, say, bind
        self._judge = Judge(settings, board)
        self._argmax = settings.mode == "argmax"
        self._one = asyncio.Lock()
        self._loud, self._clock = 0.0, clock
        self._soon = soon or asyncio.get_running_loop().call_soon

    async def filter(self, raw: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Say which nodes a pod may go to; in argmax mode a place is held when this returns."""
        began, asked = time.perf_counter(), pod.parse(raw)
        async with self._one:
            try:
                verdict, place, note = await self._decide(asked, names)
            except Unavailable as error:
                log.error("extender.unheld", extra={"pod": f"{asked.namespace}/{asked.name}", "reason": str(error)})  # noqa: TRY400 # no trace is needed
                return Filtered([], error=f"spazio: no place can be held, so the pod waits: {error}")
        answered = _answer(verdict)
        # The scheduler need not wait for what others want to know.
        self._soon(partial(self._told, verdict, place, note, time.perf_counter() - began))
        return answered

    async def prioritize(self, raw: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Return scores from 0 to 10; nodes that are not named get 0."""
        if not self._argmax:
            return _graded(self._judge.judge(pod.parse(raw), names, self._clock()))
        held = self._held_node(raw)
        if held is not None and held in names:
            return {held: _TOP}
        # Another extender has turned down our choice, or another replica has chosen and we have not heard of it.
        verdict, place = await self._anew(pod.parse(raw), names)
        return _graded(verdict) if place is None else {names[place]: _TOP}

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind a pod; returns what went wrong, empty: nothing."""
        return await self._bind(namespace, name, uid, node)

    async def preempt(
        self, raw: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return those nodes, with the UIDs of the victims, on which the pod fits once they are gone."""
        verdict = self._judge.judge(pod.parse(raw), list(victims), self._clock())
        fits = eviction.fits(self._board, verdict, list(victims.values()))
        return {name: uids for (name, uids), fit in zip(victims.items(), fits.tolist(), strict=True) if fit}

    def _held_node(self, raw: Mapping[str, Any]) -> str | None:
        """Return the node on which a pod has a place, without reading more of the pod than its UID."""
        metadata = raw.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
        row = self._board.book.row_of(uid) if isinstance(uid, str) else None
        return None if row is None else self._board.rows.names[row]

    async def _give_back(self, row: int | None, uid: str) -> None:
        """Take the place of an earlier attempt out of the bucket, for a pod that has no new one."""
        if row is not None:
            # Nobody counts it any more here; others learn it now, or at the latest when it lapses.
            with contextlib.suppress(Conflict, Unavailable):
                await self._store.release(self._board.rows.names[row], uid, self._clock())

    async def _decide(self, asked: Pod, names: Sequence[str]) -> tuple[Verdict, int | None, str]:
        """Judge until a place is held, or none is to be had; returns where, and what to say of it.

        Raises:
            Unavailable: The place cannot be held, and pods are to wait then.
        """
        earlier: int | None = None
        for _ in range(_ATTEMPTS):
            now_us = self._clock()
            # A pod that is asked about again has failed on its way; a new place of it makes the old one void.
            if (row := self._board.book.release(asked.uid)) is not None:
                earlier = row
            self._board.book.lapse(now_us)
            verdict = self._judge.judge(asked, names, now_us)
            best = verdict.best() if self._argmax and verdict.strategies else None
            if best is None:
                await self._give_back(earlier, asked.uid)
                return verdict, None, ""
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
                return verdict, None, "no place is held, NATS does not answer"
            else:
                return verdict, best, ""
        raise Unavailable(f"{_ATTEMPTS} attempts met other replicas' writes")

    async def _anew(self, asked: Pod, names: Sequence[str]) -> tuple[Verdict, int | None]:
        async with self._one:
            try:
                verdict, place, _ = await self._decide(asked, names)
            except Unavailable as error:
                self._warn(str(error))
                return self._judge.judge(asked, names, self._clock()), None
        return verdict, place

    def _held(self, asked: Pod, now_us: int) -> Held:
        until_us = now_us + round(self._settings.reservation_seconds * 1e6)
        return Held(
            namespace=asked.namespace,
            name=asked.name,
            workload=asked.workload,
            at_us=max(now_us, self._board.book.earliest(asked.uid)),
            until_us=until_us,
            requests=dict(asked.requests),
        )

    def _told(self, verdict: Verdict, place: int | None, note: str, seconds: float) -> None:
        """Say what was decided, and remember who found nothing."""
        outcome: Outcome = "passed" if not verdict.strategies else "placed" if verdict.passing.any() else "rejected"
        DECISIONS.labels(outcome).inc()
        if outcome == "rejected":
            self._waiting.rejected(verdict)
        else:
            self._waiting.done(verdict.pod.uid)
        if verdict.note == ALL_UNHEARD:
            UNGUARDED.inc()
            self._warn(ALL_UNHEARD)
        said = decision.make(
            verdict,
            outcome=outcome,
            place=place,
            mode=self._settings.mode,
            note=note,
            at_us=self._clock(),
            seconds=seconds,
        )
        self._say(said)

    def _warn(self, reason: str) -> None:
        if time.monotonic() - self._loud >= _LOUD_SECONDS:
            self._loud = time.monotonic()
            log.error("extender.unguaranteed", extra={"reason": reason})


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
        for place in mask.nonzero()[0].tolist():
            name = names[place]
            refused[name] = f"{refused[name]}; {reason}" if name in refused else f"spazio: {reason}"
    return Filtered(passing, unresolvable=refused)
