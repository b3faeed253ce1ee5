"""A verdict as the message that says it: the best nodes with their scores, and what the closest of the others lack.

What is said is our own, so it is not validated once more; that would be a third of what a decision costs.
"""

from collections.abc import Iterator

import numpy as np

from schemas.messages.placement import MOST_RANKED, Decision, Outcome, Ranked, Refusal
from sinks.extender.candidate import Array
from sinks.extender.evaluator import Verdict
from sinks.extender.state.cluster_state import STATES
from sinks.extender.strategy import combine

_MOST_NEEDS = 8
_LONGEST = 500


def make(
    verdict: Verdict, *, outcome: Outcome, place: int | None, mode: str, note: str, at_us: int, seconds: float
) -> Decision:
    """Return the message about a decision.

    Args:
        verdict: What was found.
        outcome: What came of it.
        place: Place of the node on which one is held.
        mode: argmax or graded.
        note: What else there is to say; empty: nothing.
        at_us: When it was decided.
        seconds: How long it took.
    """
    pod = verdict.pod
    counts = {reason: int(np.count_nonzero(mask)) for reason, mask in verdict.reasons.items()}
    return Decision.model_construct(
        namespace=pod.namespace,
        name=pod.name,
        pod=pod.uid,
        at_us=at_us,
        outcome=outcome,
        node=None if place is None else verdict.nodes.names[place],
        mode="graded" if mode == "graded" else "argmax",
        guaranteed=outcome == "placed" and place is not None and bool(verdict.guaranteed[place]) and not note,
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
    return [_ranked(verdict, place) for place in _first(-verdict.order(), most)]


def refusals(verdict: Verdict, most: int) -> list[Refusal]:
    """Return those nodes that are closest to passing, of those that do not: few reasons, then much room."""
    if verdict.passing.all():
        return []
    against = np.zeros(len(verdict.rows))
    for mask in verdict.reasons.values():
        against += mask
    left = np.nan_to_num(verdict.nodes.room - verdict.nodes.reserved, nan=-1e9)
    key = np.where(verdict.passing, np.inf, against * 1e9 - left)
    return [_refusal(verdict, place) for place in _first(key, most)]


def _first(key: Array, most: int) -> Iterator[int]:
    """Yield the places of the least keys, least first; infinite ones are left out.

    Most keys are equal, which is what a partition is slowest at; and there are few to be found.
    """
    left = key.copy()
    for _ in range(min(most, len(left))):
        place = int(np.argmin(left))
        if left[place] == np.inf:
            return
        yield place
        left[place] = np.inf


def _ranked(verdict: Verdict, place: int) -> Ranked:
    room = float(verdict.nodes.room[place])
    return Ranked.model_construct(
        node=verdict.nodes.names[place],
        score=round(float(verdict.total[place]), 3),
        scores={name: round(float(score[place]), 3) for name, score in verdict.scores.items()},
        room=None if np.isnan(room) else round(room, 4),
        reserved=round(max(0.0, float(verdict.nodes.reserved[place])), 4),
        state=STATES[int(verdict.states[place])],
    )


def _refusal(verdict: Verdict, place: int) -> Refusal:
    reasons = [reason for reason, mask in verdict.reasons.items() if mask[place]]
    needs = [said[:_LONGEST] for said in combine.needs(verdict.strategies, verdict.pod, verdict.nodes, place)]
    return Refusal.model_construct(
        node=verdict.nodes.names[place], reason="; ".join(reasons)[:_LONGEST], needs=needs[:_MOST_NEEDS]
    )
