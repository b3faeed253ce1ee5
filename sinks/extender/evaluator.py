"""Which nodes a pod may go to, and which of them is best: policy, then strategies.

Policy comes first. Pods that belong to a node (DaemonSets, static ones) and those that opt out are not judged. A node
that is silent keeps its last capacity for a while (`board`); silent for longer, or never heard of, it stays and is
ranked behind all others. When that holds for every node there is nothing to judge by: all pass, outside the guarantee.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.sections import placement
from schemas.sections.placement import Extender
from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.state.cluster_state import UNKNOWN, Board
from sinks.extender.strategy import combine, registry
from sinks.extender.strategy.protocol import Strategy

STRATEGY, PLACEMENT = "spazio.strategy", "spazio.placement"
UNHEARD = "no telemetry for too long"
ALL_UNHEARD = "no node has telemetry: all pass, outside the guarantee"
_JUDGED_BY = "availability"
_KNOWN_FIRST = 1e6
_SPREAD = 1e-3

Chosen = list[tuple[Strategy, float]]


class Verdict(NamedTuple):
    """What was found for one pod; arrays are (nodes,).

    Attributes:
        pod: The pod.
        strategies: What was asked, with weights; empty: the pod is not judged.
        note: Why it is not judged, or not guaranteed; empty: neither.
        nodes: The nodes as the strategies see them.
        rows: Their rows on the board.
        states: How old what they report is, as `board.STATES`.
        reasons: Nodes that are turned down, by reason.
        passing: The others.
        total: Scores from 0 to 100.
        scores: The same by strategy.
        guaranteed: A place on one of them is one that telemetry says is there.
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

    def order(self) -> Array:
        """Return (nodes,) by what they are ranked, best highest; minus infinity: the pod may not go there."""
        # Where nothing is known, pods that are there already are the only reason to go elsewhere.
        behind = -_SPREAD * (self.nodes.pods + self.nodes.reserved)
        key = self.total + np.where(self.states == UNKNOWN, behind, _KNOWN_FIRST)
        return np.where(self.passing, key, -np.inf)

    def best(self) -> int | None:
        """Return the place of the node that the pod should go to; None: there is none."""
        return int(np.argmax(self.order())) if self.passing.any() else None


class Judge:
    """Judges by settings."""

    def __init__(self, settings: Extender, board: Board) -> None:
        """Prepare the strategies of all profiles."""
        self._settings, self._board = settings, board
        self._made: dict[str, Chosen] = {}
        self._profiles = dict(entry.split(":", 1) for entry in settings.profiles)

    def judge(self, pod: Pod, names: Sequence[str], now_us: int) -> Verdict:
        """Judge nodes for a pod."""
        rows = self._board.rows.rows(names)
        nodes, states = self._board.candidates(pod, names, rows, now_us), self._board.states(rows, now_us)
        chosen, note = self._chosen(pod)
        everything = np.ones(len(rows), np.bool_)
        nothing = np.zeros(len(rows))
        exempt = why_not_judged(pod)
        if exempt:
            return Verdict(pod, [], exempt, nodes, rows, states, {}, everything, nothing, {}, ~everything)
        reasons = dict(combine.refuse(chosen, pod, nodes))
        unheard = states == UNKNOWN
        if unheard.any() and self._settings.unknown == "reject":
            reasons[UNHEARD] = unheard
        elif len(rows) and unheard.all():
            note = ALL_UNHEARD
        refused = np.logical_or.reduce(list(reasons.values())) if reasons else ~everything
        total, scores = combine.score(chosen, pod, nodes)
        by_room = any(strategy.name == _JUDGED_BY for strategy, _ in chosen)
        guaranteed = ~unheard if by_room else ~everything
        if not note and not by_room:
            note = f"strategy {_JUDGED_BY} is not asked: room is not looked at"
        return Verdict(pod, chosen, note, nodes, rows, states, reasons, ~refused, total, scores, guaranteed)

    def _chosen(self, pod: Pod) -> tuple[Chosen, str]:
        """Return the strategies of a pod, and what is wrong with its own choice."""
        default = self._profiles.get(pod.scheduler, self._settings.strategies)
        wanted, note = pod.annotations.get(STRATEGY, default), ""
        try:
            found = self._made.get(wanted) or registry.make(placement.weights(wanted), self._settings)
        except ValueError as error:
            note, wanted = f"annotation {STRATEGY}: {error}"[:500], default
            found = self._made.get(wanted) or registry.make(placement.weights(wanted), self._settings)
        if len(self._made) < 1000:  # annotations come from whoever deploys
            self._made[wanted] = found
        return found, note


def why_not_judged(pod: Pod) -> str:
    """Return why a pod is none of ours; empty: it is."""
    if pod.owner_kind == "DaemonSet":
        return "a DaemonSet's pod belongs to its node"
    if pod.static:
        return "a static pod belongs to its node"
    if pod.annotations.get(PLACEMENT) == "off":
        return f"annotation {PLACEMENT} is off"
    return ""
