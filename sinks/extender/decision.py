"""Turns a verdict into a `Decision` message: the best nodes with scores, and the needs of the closest refused ones.

The messages are built without validation, because the values are our own; validation would take a third of the time of
a decision.
"""

import math
from collections.abc import Iterator

import numpy as np

from schemas.messages.placement import MOST_RANKED, Decision, Mode, Ranked, Refusal
from sinks.extender.candidate import Array
from sinks.extender.evaluator import Verdict
from sinks.extender.state.cluster_state import STATES
from sinks.extender.strategy import combine

_MOST_NEEDS = 8
_LONGEST = 500


def make(verdict: Verdict, *, index: int | None, mode: Mode, note: str, at_us: int, seconds: float) -> Decision:
    """Return the message for a decision.

    Args:
        verdict: The evaluated nodes.
        index: Index of the reserved node among the verdict's nodes; None: no room is reserved.
        mode: argmax, graded or shadow.
        note: A remark; empty: none.
        at_us: Time of the decision.
        seconds: Duration of the decision.
    """
    pod = verdict.pod
    counts = {reason: int(np.count_nonzero(mask)) for reason, mask in verdict.reasons.items()}
    return Decision.model_construct(
        namespace=pod.namespace,
        name=pod.name,
        pod=pod.uid,
        at_us=at_us,
        outcome=verdict.outcome,
        node=None if index is None else verdict.nodes.names[index],
        mode=mode,
        guaranteed=verdict.outcome == "placed" and index is not None and bool(verdict.guaranteed[index]) and not note,
        note=(note or verdict.note)[:_LONGEST] or None,
        workload=pod.workload,
        strategies={strategy.name: weight for strategy, weight in verdict.strategies},
        nodes=len(verdict.rows),
        feasible=int(np.count_nonzero(verdict.passing)),
        refused={reason: count for reason, count in counts.items() if count},
        ranked=ranked(verdict, MOST_RANKED),
        refusals=refusals(verdict, MOST_RANKED),
        seconds=seconds,
    )


def ranked(verdict: Verdict, most: int) -> list[Ranked]:
    """Return the best of the nodes that pass, best first."""
    best = list(_first(-verdict.order(), most))
    nodes = verdict.nodes
    # One selection a column; numbers taken out of arrays one by one would take as long as all the rest.
    room, reserved, states, total = (
        column[best].tolist() for column in (nodes.room, nodes.reserved, verdict.states, verdict.total)
    )
    scores = {name: score[best].tolist() for name, score in verdict.scores.items()}
    return [
        Ranked.model_construct(
            node=nodes.names[index],
            score=round(total[rank], 3),
            scores={name: round(values[rank], 3) for name, values in scores.items()},
            room=None if math.isnan(room[rank]) else round(room[rank], 4),
            reserved=round(max(0.0, reserved[rank]), 4),
            state=STATES[states[rank]],
        )
        for rank, index in enumerate(best)
    ]


def refusals(verdict: Verdict, most: int) -> list[Refusal]:
    """Return the refused nodes that are closest to passing: fewest reasons first, then most room."""
    if verdict.passing.all():
        return []
    against = np.zeros(len(verdict.rows))
    for mask in verdict.reasons.values():
        against += mask
    left = np.nan_to_num(verdict.nodes.room - verdict.nodes.reserved, nan=-1e9)
    key = np.where(verdict.passing, np.inf, against * 1e9 - left)
    return [_refusal(verdict, index) for index in _first(key, most)]


def _first(key: Array, most: int) -> Iterator[int]:
    """Yield the indexes of the smallest keys in ascending order, without infinite ones.

    Repeated `argmin` is faster than a partition here: only a few indexes are wanted, and most keys are equal.
    """
    left = key.copy()
    for _ in range(min(most, len(left))):
        index = int(np.argmin(left))
        if left[index] == np.inf:
            return
        yield index
        left[index] = np.inf


def _refusal(verdict: Verdict, index: int) -> Refusal:
    reasons = [reason for reason, mask in verdict.reasons.items() if mask[index]]
    needs = [need[:_LONGEST] for need in combine.needs(verdict.strategies, verdict.pod, verdict.nodes, index)]
    return Refusal.model_construct(
        node=verdict.nodes.names[index], reason="; ".join(reasons)[:_LONGEST], needs=needs[:_MOST_NEEDS]
    )
