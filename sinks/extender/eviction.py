"""Tells whether a pod fits on a node after the eviction of others.

The victims leave room (`ClusterState.freed`) and their requests. The predicted peak stays as it is, because the
victims' part of it is unknown.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask
from sinks.extender.evaluator import STARTING, UNHEARD, Verdict
from sinks.extender.state import pods as pod_sums
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.strategy import combine


def fits(cluster_state: ClusterState, verdict: Verdict, victims: Sequence[Sequence[str]]) -> Mask:
    """Return (nodes,) whether the pod fits without the victims.

    Args:
        cluster_state: The state of nodes and pods.
        verdict: Of the pod, with the victims still there.
        victims: UIDs by node; an unknown pod takes no room.
    """
    if not verdict.strategies:
        return verdict.passing
    without = _without(cluster_state, verdict, victims)
    refused = list(combine.refuse(verdict.strategies, verdict.pod, without).values())
    refused += [mask for reason, mask in verdict.reasons.items() if reason in (UNHEARD, STARTING)]
    fitting: Mask = ~np.logical_or.reduce(refused) if refused else np.ones(len(victims), np.bool_)
    return fitting


def _without(cluster_state: ClusterState, verdict: Verdict, victims: Sequence[Sequence[str]]) -> Candidates:
    """Return the nodes without the victims."""
    nodes, size = verdict.nodes, len(victims)
    victim_counts: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    requested: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    nonzero: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    gone = np.zeros(size)
    for index, uids in enumerate(victims):
        for uid in uids:
            bound = cluster_state.pods.bound.get(uid)
            if bound is None:
                continue
            gone[index] += 1
            victim_counts[cluster_state.reserved.kind(bound.workload)][index] += 1
            for resource, amount in bound.requests.items():
                requested[resource][index] += amount
            for resource, amount in pod_sums.nonzero(bound.requests).items():
                nonzero[resource][index] += amount
    room = np.zeros(size)
    for kind, number in victim_counts.items():
        room += number * cluster_state.freed(verdict.pod.workload, kind, verdict.rows)
    return replace(
        nodes,
        room=nodes.room + room,
        sure=nodes.sure + room,
        pods=nodes.pods - gone,
        requested={resource: nodes.requested[resource] - requested[resource] for resource in nodes.requested},
        nonzero={resource: nodes.nonzero[resource] - nonzero[resource] for resource in nodes.nonzero},
    )
