"""kube-scheduler without an extender: it knows requests; with Trimaran's plugin also an old mean of the CPU in use.

The arithmetic of requests is that of spazio's strategies, which is kube-scheduler's. `kube` is the default profile for
bare pods: LeastAllocated and BalancedAllocation (as of 1.36), ties at random. `trimaran` ranks by TargetLoadPacking
alone; its utilization is a mean over 15 minutes, fetched every minute and read every 30 s, and pods that were bound
within the last minute of it are added as predicted.

Source: kube-scheduler 1.36, `framework/plugins/noderesources`; scheduler-plugins, `pkg/trimaran`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from schemas import settings as all_settings
from schemas.messages.facts import PodFacts
from sinks.extender import pod as pods
from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.strategy.node_resources import allocation
from sinks.extender.strategy.node_resources.least_allocated import LeastAllocated
from sinks.extender.strategy.node_resources.most_allocated import MostAllocated
from sinks.extender.strategy.node_resources.requested_to_capacity_ratio import RequestedToCapacityRatio
from sinks.extender.strategy.protocol import Strategy
from sinks.extender.strategy.target_load_packing import TargetLoadPacking, predicted
from spazio.simulation.cluster import Shown
from spazio.simulation.telemetry import Telemetry, Voice, at_us

_WEIGHTS = {"cpu": 1.0, "memory": 1.0}
_TARGET = 0.4  # Trimaran's default
_WINDOW_SECONDS, _FETCH_SECONDS, _POLL_SECONDS = 900, 60, 30
_SHAPE = [(0, 0), (100, 100)]  # kube-scheduler's documented example for bin packing, 0 to 10 for 0 to 100 %


class ByRequests:
    """One of kube-scheduler's profiles."""

    def __init__(self, voice: Voice, seed: int, profile: str) -> None:
        """Know all nodes and no pod."""
        self._voice, self._profile, self._random = voice, profile, np.random.default_rng([seed, 7])
        self._cluster_state = ClusterState(all_settings.load({}, environ={}))
        self._cpus: list[float] = []
        for facts in voice.describe():
            self._cluster_state.describe(facts)
            self._cpus.append(facts.capacity["cpu"])
        self._index = {name: index for index, name in enumerate(voice.nodes)}
        self._rank: Strategy = _strategy(profile)
        self._used: deque[NDArray[np.float64]] = deque(maxlen=_WINDOW_SECONDS)
        self._fetched = self._read = (0.0, np.full(len(voice.nodes), np.nan))
        self._bound: deque[tuple[float, int, float]] = deque()

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        """Return the node of the highest score among those with enough unrequested resources."""
        asked = pods.parse(self._voice.object(pod))
        rows = self._cluster_state.rows.rows(nodes)
        candidates = self._cluster_state.candidates(asked, nodes, rows, at_us(now))
        fits = fitting(asked, candidates)
        if not fits.any():
            return None
        scores = np.where(fits, self._scores(asked, candidates, now), -1.0)
        chosen = int(self._random.choice(np.flatnonzero(scores == scores.max())))
        self._bound.append((now, self._index[nodes[chosen]], predicted(asked)))
        return chosen

    def hear(self, facts: PodFacts) -> None:
        """Count a pod's requests on its node."""
        self._cluster_state.pods.hear(facts)

    def observe(self, now: float, ticks: Sequence[Shown], messages: Sequence[Telemetry]) -> None:  # noqa: ARG002 # other telemetry
        """Take the CPU in use into the mean that Trimaran sees late."""
        if self._profile != "trimaran":
            return
        self._used.append(np.mean([tick.used for tick in ticks], axis=0) / self._cpus)
        if round(now) % _FETCH_SECONDS == 0:
            self._fetched = now, np.mean(self._used, axis=0)
        if round(now) % _POLL_SECONDS == 0:
            self._read = self._fetched

    def leave(self, node: str) -> None:
        """Forget a node."""
        self._cluster_state.leave(node)

    def _scores(self, asked: Pod, nodes: Candidates, now: float) -> Array:
        if self._profile == "kube":
            return self._rank.score(asked, nodes) + _balanced(asked, nodes)
        if self._profile != "trimaran":
            return self._rank.score(asked, nodes)
        ended, used = self._read
        while self._bound and self._bound[0][0] <= now - _WINDOW_SECONDS:
            self._bound.popleft()
        recent = np.zeros(len(self._index))
        for at, node, cores in self._bound:
            recent[node] += cores * (at > ended - _FETCH_SECONDS)
        rows = [self._index[name] for name in nodes.names]
        # Before the first fetch every node scores 0, as with no metrics.
        return self._rank.score(asked, replace(nodes, usage_cpu=used[rows], recent_cpu=recent[rows]))


def fitting(asked: Pod, candidates: Candidates) -> Mask:
    """Return (nodes,) where NodeResourcesFit lets a pod pass."""
    fits = np.ones(len(candidates.names), dtype=np.bool_)
    for mask in allocation.Fit().refuse(asked, candidates).values():
        fits &= ~mask
    return fits


def _strategy(profile: str) -> Strategy:
    made: Mapping[str, Strategy] = {
        "kube": LeastAllocated(_WEIGHTS),
        "most_allocated": MostAllocated(_WEIGHTS),
        "requested_to_capacity_ratio": RequestedToCapacityRatio(_WEIGHTS, _SHAPE),
        "trimaran": TargetLoadPacking(_TARGET),
    }
    return made[profile]


def _balanced(pod: Pod, nodes: Candidates) -> Array:
    """Return BalancedAllocation's scores as of 1.36: 75 where the pod changes nothing, 50 at worst, 100 at best."""
    if not any(pod.requests.get(resource) for resource in _WEIGHTS):
        return np.zeros(len(nodes.names))

    def balance(more: float) -> Array:
        shares = []
        for resource in _WEIGHTS:
            held = nodes.requested[resource] + more * pod.requests.get(resource, 0.0)
            shares.append(np.minimum(1.0, held / np.maximum(nodes.allocatable[resource], 1e-9)))
        return np.asarray(np.floor((1.0 - np.abs(shares[0] - shares[1]) / 2.0) * 100.0))

    return np.asarray(np.floor(50.0 + (50.0 + balance(1.0) - balance(0.0)) / 2.0))
