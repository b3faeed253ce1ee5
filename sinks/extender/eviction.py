"""Tells whether a pod fits on a node after the eviction of others, and counts that room until reports show it.

The victims leave room (`ClusterState.freed`) and their requests. The predicted peak stays as it is, because the
victims' part of it is unknown.

kube-scheduler asks about the pod again as soon as the victims are gone, seconds before a report shows what they have
left. If the node refused the pod then, the scheduler would evict pods on another node, and so on from node to node. The
room is therefore counted for that pod, and for no other, until a report of `settle_seconds` later.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.evaluator import STARTING, UNDESCRIBED, UNHEARD, Verdict
from sinks.extender.state import pod_sums
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.strategy import combine

_MOST = 200
_PATIENCE_US = 600_000_000  # longest that victims may take to end
_LATE_US = 2_000_000  # by which facts may come later to us than to the scheduler


@dataclass(slots=True)
class _Eviction:
    """The victims of one node.

    Attributes:
        victims: Their UIDs.
        room: Room of the node while they were there, in pods of the kind that needs it.
        sure: Its lower bound.
        freed: Room that those of them leave that reports showed.
        at_us: When it was agreed.
        gone_us: When they were first seen to be gone; None: they are not.
    """

    victims: Sequence[str]
    room: float
    sure: float
    freed: float
    at_us: int
    gone_us: int | None = None


class Evictions:
    """Evictions that the extender reported to the scheduler as making room: by the pod that needs it, and by node."""

    def __init__(self, cluster_state: ClusterState, settle_seconds: float) -> None:
        """Create an empty account; reports show what has gone after `settle_seconds`."""
        self._cluster_state, self._settle_us = cluster_state, round(settle_seconds * 1e6)
        self._agreed: dict[str, dict[str, _Eviction]] = {}

    def forget(self, uid: str) -> None:
        """Forget the victims of a pod, because the scheduler looks for others."""
        self._agreed.pop(uid, None)

    def agree(self, verdict: Verdict, victims: Mapping[str, Sequence[str]], now_us: int) -> Mapping[str, Sequence[str]]:
        """Return the nodes, with their victims, on which the pod of the verdict fits once these are gone.

        Args:
            verdict: Of the pod on these nodes, with the victims still there.
            victims: UIDs by node; an unknown pod takes no room.
            now_us: The time.
        """
        if not verdict.strategies:
            return victims
        nodes, bound = verdict.nodes, self._cluster_state.pods.bound
        without = _without(self._cluster_state, verdict.pod, nodes, verdict.rows, list(victims.values()))
        # The reservation of a victim that no report shows yet ends with it.
        shown = [[uid for uid in uids if uid in bound and bound[uid].covered] for uids in victims.values()]
        freed = _without(self._cluster_state, verdict.pod, nodes, verdict.rows, shown).room - nodes.room
        refused = list(combine.refuse(verdict.strategies, verdict.pod, without).values())
        refused += [mask for reason, mask in verdict.reasons.items() if reason in (UNHEARD, STARTING, UNDESCRIBED)]
        fits: Mask = ~np.logical_or.reduce(refused) if refused else np.ones(len(victims), np.bool_)
        self._agreed[verdict.pod.uid] = {
            name: _Eviction(
                uids,
                float(nodes.room[index]),
                float(nodes.sure[index]),
                float(freed[index]),
                now_us,
            )
            for index, (name, uids) in enumerate(victims.items())
            if fits[index]
        }
        if len(self._agreed) > _MOST:
            del self._agreed[next(iter(self._agreed))]
        return {name: victims[name] for name in self._agreed[verdict.pod.uid]}

    def relieve(self, pod: Pod, nodes: Candidates, rows: NDArray[np.intp], now_us: int) -> Candidates:
        """Return the nodes as they will be for a pod once reports show that its victims are gone.

        Args:
            pod: The pod to place.
            nodes: The nodes as they are.
            rows: Their rows in the cluster state.
            now_us: The time.
        """
        agreed = self._agreed.get(pod.uid)
        if agreed is None:
            return nodes
        room, sure = nodes.room.copy(), nodes.sure.copy()
        leaving: list[Sequence[str]] = [()] * len(rows)
        for index, name in enumerate(nodes.names):
            eviction = agreed.get(name)
            if eviction is None or not self._counts(pod, name, eviction, int(rows[index]), now_us):
                continue
            leaving[index] = eviction.victims
            # Where a report shows part of it already, it is not counted twice.
            room[index] = max(room[index], min(room[index], eviction.room) + eviction.freed)
            sure[index] = max(sure[index], min(sure[index], eviction.sure) + eviction.freed)
        return replace(_without(self._cluster_state, pod, nodes, rows, leaving), room=room, sure=sure)

    def _counts(self, pod: Pod, name: str, eviction: _Eviction, row: int, now_us: int) -> bool:
        """Tell whether the victims of a node are as good as gone, and no report shows it for sure.

        The scheduler may know sooner than we that they are gone: its own filters let the pod wait until they are, so it
        asks about the node only then. That counts for the node that it has named for the pod, and for a moment for all.
        """
        gone = not any(uid in self._cluster_state.pods.bound for uid in eviction.victims)
        if gone and eviction.gone_us is None:
            eviction.gone_us = now_us
        age_us = now_us - eviction.at_us
        if age_us >= _PATIENCE_US or not (gone or pod.nominated == name or age_us < _LATE_US):
            return False
        reported_us = self._cluster_state.pods.reported_us.get(row, 0)
        return eviction.gone_us is None or reported_us < eviction.gone_us + self._settle_us


def _without(
    cluster_state: ClusterState,
    pod: Pod,
    nodes: Candidates,
    rows: NDArray[np.intp],
    victims: Sequence[Sequence[str]],
) -> Candidates:
    """Return the nodes without the victims, for a pod that takes their place."""
    size = len(victims)
    victim_counts: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    requested: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    nonzero: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    gone, stated, kind_of = np.zeros(size), np.zeros(size), cluster_state.reserved.kind
    for index, uids in enumerate(victims):
        for uid in uids:
            bound = cluster_state.pods.bound.get(uid)
            if bound is None:
                continue
            gone[index] += 1
            kind = kind_of(bound.workload, bound.row)
            victim_counts[kind][index] += 1
            if kind == kind_of(pod.workload, bound.row):  # neither is reported, or both are of one class
                stated[index] += _replaced(pod, bound.requests)
            for resource, amount in bound.requests.items():
                requested[resource][index] += amount
            for resource, amount in pod_sums.nonzero(bound.requests).items():
                nonzero[resource][index] += amount
    room = np.zeros(size)
    for kind, number in victim_counts.items():
        room += number * cluster_state.reserved.freed(pod.workload, kind, rows, nodes.room)
    room = np.fmax(room, stated)
    return replace(
        nodes,
        room=nodes.room + room,
        sure=nodes.sure + room,
        pods=nodes.pods - gone,
        requested={resource: nodes.requested[resource] - requested[resource] for resource in nodes.requested},
        nonzero={resource: nodes.nonzero[resource] - nonzero[resource] for resource in nodes.nonzero},
    )


def _replaced(pod: Pod, requests: Mapping[str, float]) -> float:
    """Return the share of a pod, at most 1, that the requests of another one make room for."""
    shares = (requests.get(resource, 0.0) / amount for resource, amount in pod.nonzero.items() if amount)
    return min([1.0, *shares])
