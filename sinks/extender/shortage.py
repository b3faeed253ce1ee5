"""Publishes what lacks room: pods that wait, nodes without room for them, and nodes whose pods would fit nowhere else.

Only the extender knows this: it has the pods that it refused, and the room less reservations. A node is full if it
reports, measured room made it refuse a pod that waits, and it has room for none of the waiting pods that it refused.
Where only reservations take the room, it is full once they have taken it for `_HELD_SECONDS`: pods that have just
started often turn out to take less than is held for them.
Once another service taints full nodes, kube-scheduler itself filters them out and asks about the others only. So a
node that has the taint stays in the account of the kinds that it refused before.

While nothing lacks room nothing is published, except once when that state begins.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

import numpy as np
from prometheus_client import Gauge

from bus.client import Client
from bus.health import Health
from bus.publishing.outbox import Outbox
from schemas import codec
from schemas.messages.placement import MOST_NODES, MOST_WAITING, Shortage, WaitingPodKind
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.extender.candidate import Mask
from sinks.extender.evaluator import Evaluator, Verdict
from sinks.extender.requeue import Kind, WaitingKind, WaitingPods
from sinks.extender.state import stranded
from sinks.extender.state.cluster_state import FRESH, ClusterState
from sinks.extender.strategy import availability, peak

log = logging.getLogger(__name__)

_VALID_ROUNDS = 5
_ROUNDS_BETWEEN_STRANDED = 5
_HELD_SECONDS = 30.0
_BY_ROOM = availability.FULL, availability.PARTIAL
_BY_PEAK = tuple(map(peak.reason, peak.RESOURCES))

FULL = Gauge("spazio_extender_full_nodes", "nodes without room for any of the waiting pods that they refused")
STRANDED = Gauge("spazio_extender_stranded_nodes", "nodes whose pods would not all fit on other nodes")


class Shortages:
    """Summarises what lacks room."""

    def __init__(self, settings: Settings, cluster_state: ClusterState, waiting: WaitingPods, replica: str) -> None:
        """Begin with nothing.

        Args:
            settings: All settings.
            cluster_state: Nodes and pods.
            waiting: The rejected pods.
            replica: Name of this replica.
        """
        self._cluster_state, self._waiting, self._replica = cluster_state, waiting, replica
        self._evaluator = Evaluator(settings.extender, cluster_state)
        self._valid_us = round(_VALID_ROUNDS * settings.extender.shortage_seconds * 1e6)
        self._refused: dict[Kind, frozenset[str]] = {}
        self._held_since_us: dict[str, int] = {}
        self._stranded: list[str] = []
        self._round = 0

    async def summary(self, now_us: int) -> Shortage:
        """Return what lacks room at a time.

        Args:
            now_us: The time.
        """
        self._waiting.forget(self._cluster_state)
        kinds = self._waiting.longest(MOST_WAITING)
        if self._round % _ROUNDS_BETWEEN_STRANDED == 0:
            self._stranded = await stranded.find(self._cluster_state, now_us)
        self._round += 1
        full = await self._full(kinds, now_us)
        FULL.set(len(full))
        STRANDED.set(len(self._stranded))
        now = time.monotonic()
        return Shortage(
            replica=self._replica,
            at_us=now_us,
            until_us=now_us + self._valid_us,
            pods=len(self._waiting),
            waiting=[
                WaitingPodKind(
                    workload=each.pod.workload,
                    pods=each.pods,
                    since_us=now_us - round((now - each.since) * 1e6),
                )
                for each in kinds
            ],
            full=full[:MOST_NODES],
            stranded=self._stranded[:MOST_NODES],
        )

    async def _full(self, kinds: list[WaitingKind], now_us: int) -> list[str]:
        """Return the full nodes."""
        full, held, fitting, refused = set[str](), set[str](), set[str](), dict[Kind, frozenset[str]]()
        for each in kinds:
            refused[each.kind] = self._nodes(each)
            names = list(refused[each.kind])
            if names:
                verdict = self._evaluator.evaluate(each.pod, names, now_us)
                measured, reserved = _without_room(verdict)
                full |= measured
                held |= reserved
                fitting |= _named(names, verdict.passing)
            await asyncio.sleep(0)  # answers come first
        self._refused = refused
        self._held_since_us = {name: self._held_since_us.get(name, now_us) for name in held - full - fitting}
        full |= {name for name, since in self._held_since_us.items() if now_us - since >= _HELD_SECONDS * 1e6}
        return sorted(full - fitting)

    def _nodes(self, each: WaitingKind) -> frozenset[str]:
        """Return the nodes that refuse a kind: those that did last, and those that did before they had the taint."""
        before = list(self._refused.get(each.kind, frozenset()) - each.nodes)
        rows = self._cluster_state.rows.rows(before)
        there = self._cluster_state.rows["facts"][rows] > 0
        tainted = there & (self._cluster_state.rows["tainted"][rows] > 0)
        return each.nodes | {name for name, still in zip(before, tainted.tolist(), strict=True) if still}


def _without_room(verdict: Verdict) -> tuple[set[str], set[str]]:
    """Return the nodes that report and lack room as they are measured, and those that lack it for reservations."""
    peaked = _refused(verdict, _BY_PEAK)
    lacking = peaked | _refused(verdict, _BY_ROOM)
    measured = peaked | (lacking & (verdict.nodes.sure < 1))
    fresh = verdict.states == FRESH
    names = verdict.nodes.names
    return _named(names, measured & fresh), _named(names, lacking & ~measured & fresh)


def _refused(verdict: Verdict, reasons: Sequence[str]) -> Mask:
    """Return (nodes,) where a node is refused for any of these reasons."""
    refused = np.zeros(len(verdict.rows), np.bool_)
    for reason in reasons:
        refused |= verdict.reasons.get(reason, False)
    return refused


def _named(names: Sequence[str], mask: Mask) -> set[str]:
    return {name for name, chosen in zip(names, mask.tolist(), strict=True) if chosen}


async def run(
    client: Client, settings: Settings, health: Health, cluster_state: ClusterState, waiting: WaitingPods, replica: str
) -> None:
    """Publish until cancelled; the cluster state must be complete.

    Args:
        client: Connection.
        settings: All settings.
        health: Degraded while nothing can be published.
        cluster_state: Nodes and pods.
        waiting: The rejected pods.
        replica: Name of this replica.
    """
    seconds = settings.extender.shortage_seconds
    subject = Names(settings.prefix).of("shortage", token(replica))
    shortages = Shortages(settings, cluster_state, waiting, replica)
    outbox = Outbox(client, health, limit=1, timeout_seconds=settings.nats.request_timeout_seconds, kind="shortage")
    lacking = False
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.run())
        while True:
            await asyncio.sleep(seconds)
            if not await outbox.flush(seconds):
                continue  # the server stores nothing: an older summary is still on its way
            try:
                message = await shortages.summary(time.time_ns() // 1000)
            except Exception:  # placement must go on without summaries, too
                log.exception("shortage.summary_failed")
                continue
            before, lacking = lacking, bool(message.pods or message.stranded)
            if lacking or before:
                outbox.put(subject, codec.encode(message), f"shortage:{replica}:{message.at_us}")
