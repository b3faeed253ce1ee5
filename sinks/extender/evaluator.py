"""Decides which nodes a pod may go to, and which of them is best: policy first, then strategies.

Pods of DaemonSets and pods that opt out are not evaluated. Who creates a pod chooses its owner, so a DaemonSet's is one
whose affinity names one node, as the controller sets it. Static pods are never asked about. A silent node keeps its
last capacity for a while (`ClusterState`). A node that is silent for longer, or that never reported, ranks behind all
others. If this holds for all nodes that a pod may use, they pass without the guarantee.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.messages.placement import Outcome
from schemas.sections import ranking
from schemas.sections.placement import Extender
from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.state.cluster_state import UNKNOWN, ClusterState
from sinks.extender.strategy import combine, registry
from sinks.extender.strategy.protocol import Strategy
from sinks.extender.strategy.weighted import ASKED, Weighted

STRATEGY, PLACEMENT = "spazio.strategy", "spazio.placement"
READ = frozenset((STRATEGY, PLACEMENT, *ASKED))  # the labels and annotations of a pod on which a verdict depends
UNHEARD = "no telemetry for too long"
STARTING = "the node has only just been added: its first report is awaited, and meanwhile it takes one pod"
UNDESCRIBED = (
    "neither the API's facts of the node nor a report of it have come, so it takes no pod: is `spazio watch` running?"
)
ALL_UNHEARD = "no node has telemetry: all pass, outside the guarantee"
NONE_HEARD = "no node that was asked about has telemetry: all of them pass, outside the guarantee"
NO_MARKET = "no past prices and interruptions: is a history sink running?"
_ROOM_STRATEGY = "availability"
_KNOWN_FIRST = 1e6
_SPREAD = 1e-3
_MOST_TEXTS = 1000  # annotations are input of users

Chosen = list[tuple[Strategy, float]]
Relieve = Callable[[Pod, Candidates, NDArray[np.intp], int], Candidates]


class Verdict(NamedTuple):
    """The evaluation of one pod; arrays are (nodes,).

    Attributes:
        pod: The pod.
        strategies: The strategies, with weights; empty: the pod is not evaluated.
        note: Why it is not evaluated, or not guaranteed; empty: neither.
        nodes: The nodes as the strategies see them.
        rows: Rows of the nodes in the cluster state.
        states: Age of the nodes' reports, as indexes of `cluster_state.STATES`.
        reasons: Refused nodes, by reason.
        passing: Nodes that are not refused.
        total: Scores from 0 to 100.
        scores: Scores by strategy.
        guaranteed: Telemetry confirms the room on the node.
        registered: The API has the node, or it has reported; on others nothing is reserved.
    """

    pod: Pod
    strategies: Chosen
    note: str
    nodes: Candidates
    rows: NDArray[np.intp]
    states: NDArray[np.int64]
    reasons: Mapping[str, Mask]
    passing: Mask
    total: Array
    scores: Mapping[str, Array]
    guaranteed: Mask
    registered: Mask

    @property
    def outcome(self) -> Outcome:
        """What becomes of the pod: it is not evaluated and passes, it is placed, or each node is refused."""
        if not self.strategies:
            return "passed"
        return "placed" if self.passing.any() else "rejected"

    def order(self) -> Array:
        """Return (nodes,) the sort key, highest for the best node; minus infinity for refused nodes."""
        # Among nodes without telemetry, those with fewer pods come first, and those of which nothing is known last.
        behind = -_SPREAD * (self.nodes.pods + self.nodes.reserved) - np.where(self.registered, 0.0, _KNOWN_FIRST)
        key = self.total + np.where(self.states == UNKNOWN, behind, _KNOWN_FIRST)
        return np.where(self.passing, key, -np.inf)

    def best(self) -> int | None:
        """Return the index of the best node; None: all nodes are refused."""
        return int(np.argmax(self.order())) if self.passing.any() else None


class Evaluator:
    """Evaluates nodes for pods, as the settings say."""

    def __init__(self, settings: Extender, cluster_state: ClusterState, relieve: Relieve | None = None) -> None:
        """Prepare the strategies of all profiles.

        Args:
            settings: The extender's settings.
            cluster_state: Nodes, pods and reservations.
            relieve: Changes the nodes for a pod that others were evicted for.
        """
        self._settings, self._cluster_state, self._relieve = settings, cluster_state, relieve
        self._strategies: dict[str, Chosen] = {}
        self._profiles = dict(entry.split(":", 1) for entry in settings.profiles)

    def evaluate(self, pod: Pod, names: Sequence[str], now_us: int) -> Verdict:
        """Return the verdict on these nodes for a pod."""
        rows = self._cluster_state.rows.rows(names)
        nodes = self._cluster_state.candidates(pod, names, rows, now_us)
        if self._relieve is not None:
            nodes = self._relieve(pod, nodes, rows, now_us)
        states = self._cluster_state.states(rows, now_us)
        registered = self._cluster_state.registered(rows)
        chosen, note = self._chosen(pod)
        all_nodes = np.ones(len(rows), np.bool_)
        zeros = np.zeros(len(rows))
        exempt = exemption(pod)
        if exempt:
            return Verdict(pod, [], exempt, nodes, rows, states, {}, all_nodes, zeros, {}, ~all_nodes, registered)
        reasons = dict(combine.refuse(chosen, pod, nodes))
        unheard = states == UNKNOWN
        new = self._new(rows, registered, now_us)
        if unheard.any() and self._settings.unknown == "reject":
            reasons[UNHEARD] = unheard
        elif new:
            reasons |= new
        elif len(rows) and unheard.all():
            note = NONE_HEARD if self._has_telemetry(now_us) else ALL_UNHEARD
        refused = np.logical_or.reduce(list(reasons.values())) if reasons else ~all_nodes
        total, scores = combine.score(chosen, pod, nodes)
        by_room = any(strategy.name == _ROOM_STRATEGY for strategy, _ in chosen)
        guaranteed = ~unheard if by_room else ~all_nodes
        if not note and self._lacks_market(chosen, now_us):
            note = NO_MARKET
        if not note and not by_room:
            note = f"strategy {_ROOM_STRATEGY} is not asked: room is not looked at"
        return Verdict(pod, chosen, note, nodes, rows, states, reasons, ~refused, total, scores, guaranteed, registered)

    def _new(self, rows: NDArray[np.intp], registered: Mask, now_us: int) -> dict[str, Mask]:
        """Return (nodes,) where no pod may go for now, while others report; by the reason, without those of no node.

        A new node takes one pod until it has reported. Pods that belong to a node, as of DaemonSets, are on each new
        one at once, and do not count. A node that the API does not have yet takes none where the cluster watch reports
        others: its facts are on their way.
        """
        if not self._has_telemetry(now_us):
            return {}
        take, stale_us = self._cluster_state.rows, self._settings.stale_seconds * 1e6
        silent = (take["facts"][rows] > 0) & (take["at"][rows] == 0)
        starting = silent & (now_us - take["created"][rows] <= stale_us) & (take["placed"][rows] > 0)
        masks = {STARTING: starting, UNDESCRIBED: ~registered & (take["facts"] > 0).any()}
        return {reason: mask for reason, mask in masks.items() if mask.any()}

    def _has_telemetry(self, now_us: int) -> bool:
        """Tell whether any node of the cluster has reported lately."""
        return bool((now_us - self._cluster_state.rows["at"] <= self._settings.stale_seconds * 1e6).any())

    def _lacks_market(self, chosen: Chosen, now_us: int) -> bool:
        needed = any(isinstance(strategy, Weighted) and strategy.needs_market for strategy, _ in chosen)
        return needed and self._cluster_state.market.is_stale(now_us)

    def _chosen(self, pod: Pod) -> tuple[Chosen, str]:
        """Return the strategies of a pod, and the error in its annotation; empty: none."""
        default = self._profiles.get(pod.scheduler, self._settings.strategies)
        try:
            return self._made(pod.annotations.get(STRATEGY, default)), ""
        except ValueError as error:
            return self._made(default), f"annotation {STRATEGY}: {error}"[:500]

    def _made(self, text: str) -> Chosen:
        """Return the strategies that a text names; those of the texts that were used last are kept.

        Raises:
            ValueError: As `ranking.terms`.
        """
        chosen = self._strategies.pop(text, None) or registry.make(ranking.terms(text), self._settings)
        self._strategies[text] = chosen
        if len(self._strategies) > _MOST_TEXTS:
            del self._strategies[next(iter(self._strategies))]
        return chosen


def exemption(pod: Pod) -> str:
    """Return why a pod is not evaluated; empty: it is."""
    if pod.owner_kind == "DaemonSet" and pod.pinned:
        return "a DaemonSet's pod belongs to its node"
    if pod.annotations.get(PLACEMENT) == "off":
        return f"annotation {PLACEMENT} is off"
    return ""
