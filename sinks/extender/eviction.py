"""Whether a pod fits on a node once others are evicted there.

What they leave is room (`Board.freed`), and what they requested. The
predicted peak stays as it is: nobody knows their part of it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask
from sinks.extender.evaluator import UNHEARD, Verdict
from sinks.extender.state import pods as pod_sums
from sinks.extender.state.cluster_state import Board
from sinks.extender.strategy import combine


def fits(board: Board, verdict: Verdict, victims: Sequence[Sequence[str]]) -> Mask:
    """Return (nodes,) whether the pod fits without the victims.

    Args:
        board: What is known of them.
        verdict: Of the pod, with everything that is there now.
        victims: UIDs by node; who is not known takes no room.
    """
    if not verdict.strategies:
        return verdict.passing
    without = _without(board, verdict, victims)
    refused = list(combine.refuse(verdict.strategies, verdict.pod, without).values())
    refused += [mask for reason, mask in verdict.reasons.items() if reason == UNHEARD]
    found: Mask = ~np.logical_or.reduce(refused) if refused else np.ones(len(victims), np.bool_)
    return found


def _without(board: Board, verdict: Verdict, victims: Sequence[Sequence[str]]) -> Candidates:
    """Return the nodes as they are without the victims."""
    nodes, size = verdict.nodes, len(victims)
    kinds: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    requested: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    nonzero: defaultdict[str, Array] = defaultdict(lambda: np.zeros(size))
    gone = np.zeros(size)
    for place, uids in enumerate(victims):
        for uid in uids:
            known = board.pods.known.get(uid)
            if known is None:
                continue
            gone[place] += 1
            kinds[board.reserved.kind(known.workload)][place] += 1
            for resource, amount in known.requests.items():
                requested[resource][place] += amount
            for resource, amount in pod_sums.nonzero(known.requests).items():
                nonzero[resource][place] += amount
    room = np.zeros(size)
    for kind, number in kinds.items():
        room += number * board.freed(verdict.pod.workload, kind, verdict.rows)
    return replace(
        nodes,
        room=nodes.room + room,
        sure=nodes.sure + room,
        pods=nodes.pods - gone,
        requested={resource: nodes.requested[resource] - requested[resource] for resource in nodes.requested},
        nonzero={resource: nodes.nonzero[resource] - nonzero[resource] for resource in nodes.nonzero},
    )
