"""spazio itself: the processors' fold of the telemetry, and the extender's answers, in process and on a virtual clock.

What a server would carry is handed over directly: estimates of a second are in the extender's state when the second
has ended, and reservations are written at once.
"""

from collections.abc import Callable, Sequence

from schemas import codec
from schemas import settings as all_settings
from schemas.messages.facts import UNBOUND, PodFacts
from schemas.messages.placement import Decision, Held, Mode, Reservations
from schemas.sections.placement import Extender
from schemas.subject import Names
from sinks.extender import pod as pods
from sinks.extender.placement import PlacementSelector, Soon
from sinks.extender.requeue import WaitingPods
from sinks.extender.shadow import Ledger, ShadowSelector
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.state.store import ReservationStore
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.web.selector import Selector
from spazio.in_process import InProcess
from spazio.simulation.cluster import Shown
from spazio.simulation.scenario import Scenario
from spazio.simulation.schedulers.by_requests import fitting
from spazio.simulation.telemetry import Telemetry, Voice, at_us


def _unread(decision: Decision) -> None:
    """Drop a decision: nothing here subscribes to it."""


class Product:
    """spazio's default form, or that of the reference variant.

    Attributes:
        promises: What became of the room that it stated.
    """

    def __init__(
        self,
        scenario: Scenario,
        voice: Voice,
        variant: str,
        mode: Mode = "argmax",
        publish: Callable[[Decision], None] = _unread,
    ) -> None:
        """Know all nodes; telemetry follows.

        Args:
            scenario: The scenario.
            voice: What the cluster says.
            variant: The model's variant.
            mode: argmax; or shadow, in which it decides as if.
            publish: Takes each decision.
        """
        settings = all_settings.load(
            {
                "model_variant": variant,
                "policy_slowdown": str(scenario.slowdown),
                "smoothing_publish": "false",
                "nats_partitions": "1",
                "extender_mode": mode,
            },
            environ={},
        )
        self._voice, self._names, self._now_us = voice, Names(settings.prefix), at_us(0)
        self._processors = InProcess(settings)
        self._cluster_state = ClusterState(settings)
        self.promises = PromiseTracker(settings.extender, self._cluster_state, "simulated", lambda: self._now_us / 1e6)
        self._publish = publish
        self._ledger = Ledger(publish, lambda: self._now_us / 1e6)
        self._selector = self._made(settings.extender)
        facts = list(voice.describe())
        self._processors.fold([(self._names.part(0, "nodefacts", each.node), codec.encode(each)) for each in facts])
        for each in facts:
            self._cluster_state.describe(each)

    def _made(self, settings: Extender) -> Selector:
        soon: Soon = lambda work: work()  # noqa: E731 # what the event loop's `call_soon` is for the extender
        if settings.mode == "shadow":
            return ShadowSelector(settings, self._cluster_state, self._ledger, _unbound, soon, lambda: self._now_us)
        return PlacementSelector(
            settings,
            self._cluster_state,
            _MemoryStore(self._cluster_state),
            WaitingPods(),
            self._publish,
            _unbound,
            clock=lambda: self._now_us,
            soon=soon,
        )

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        """Ask the extender as kube-scheduler does: filter, then prioritize."""
        self._now_us = at_us(now)
        raw = self._voice.object(pod)
        asked = pods.parse(raw)
        rows = self._cluster_state.rows.rows(nodes)
        fits = fitting(asked, self._cluster_state.candidates(asked, nodes, rows, self._now_us))
        fitting_nodes = [name for name, fit in zip(nodes, fits.tolist(), strict=True) if fit]
        if not fitting_nodes:
            return None
        filtered = await self._selector.filter(raw, fitting_nodes)
        if not filtered.passing:
            return None
        scores = await self._selector.prioritize(raw, filtered.passing)
        return nodes.index(max(filtered.passing, key=lambda name: scores.get(name, 0)))

    def hear(self, facts: PodFacts) -> None:
        """Take what the watch says of a pod, in both services."""
        self._processors.fold([(self._names.part(0, "podfacts", facts.node), codec.encode(facts))])
        if facts.node != UNBOUND and self._cluster_state.pods.is_new(facts):
            self.promises.bound(facts, self._now_us)
        self._cluster_state.pods.hear(facts)
        if facts.node != UNBOUND:
            self._ledger.bound(facts.pod, facts.node)
        self._cluster_state.reservations.settle(facts.pod)

    def observe(self, now: float, ticks: Sequence[Shown], messages: Sequence[Telemetry]) -> None:  # noqa: ARG002 # it has messages
        """Fold one second, and hand its estimates to the extender."""
        self._now_us = at_us(now)
        estimates, refused = self._processors.fold(messages)
        assert not refused, refused[0]
        for estimate in estimates:
            self._cluster_state.report(estimate)
        self.promises.watch()

    def leave(self, node: str) -> None:
        """Forget a node."""
        self._cluster_state.leave(node)


class _MemoryStore(ReservationStore):
    """Reservations of the only extender there is."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._state, self._sequence = cluster_state, 0

    async def hold(self, node: str, uid: str, held: Held, now_us: int) -> None:
        self._write(node, self._state.reservations.held(self._state.rows.row(node), now_us, but=uid) | {uid: held})

    async def release(self, node: str, uid: str, now_us: int) -> None:
        self._write(node, self._state.reservations.held(self._state.rows.row(node), now_us, but=uid))

    def _write(self, node: str, pods: dict[str, Held]) -> None:
        self._sequence += 1
        self._state.reservations.hear(Reservations(node=node, pods=pods), self._sequence)


async def _unbound(_namespace: str, _name: str, _uid: str, _node: str) -> str:
    return "the simulation binds by itself"
