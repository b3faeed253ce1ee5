"""CARICO's rule: prefer the node with the most room for pods of the same kind, less its reservations.

The filter uses the lower bound of the room and the score uses the mean, so a node with few measurements gains nothing
from its uncertainty. The cost of a pod's kind is an assumption while a report says so, and for a kind that a report
does not name until telemetry has shown a pod of it for a minute, on whichever node. Meanwhile the strategy admits one
such pod per node, and none where any pod has just started, and waits until telemetry shows what it takes, so a new
cluster fills as fast as evidence arrives. Where the bound counts in part for want of evidence, the refusal says so,
since no resource is lacking. No node gets a pod that requests more than the node has.

Room has no upper bound, but scores end at 100. With x the room less reservations, the score is 100 x / (x + 10): ten
pods score 50. The score rises strictly with x, so different rooms score differently. Up to a million pods, it resolves
a twentieth of a pod.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod

FULL = "no room for another pod of its kind"
PARTIAL = "what a pod of its kind takes is still being learned, and the room that is open meanwhile is taken"
LEARNING = "what a pod of its kind takes is unknown, and another pod has just started there"
BEYOND = "the node is smaller than what the pod requests"
_HALF = 10.0


class Availability:
    """Ranks by room less reservations; nodes whose room is unknown pass and score 0."""

    name = "availability"

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return the nodes whose lower bound leaves no room for one more pod beside the reservations."""
        reasons = {BEYOND: _beyond(pod, nodes), **_lacking(nodes), LEARNING: _learning(nodes)}
        return {reason: mask for reason, mask in reasons.items() if _any(mask)}

    def score(self, pod: Pod, nodes: Candidates) -> Array:  # noqa: ARG002
        """Return (nodes,) scores from 0 to 100, which rise strictly with room less reservations."""
        left = np.clip(np.nan_to_num(nodes.room - nodes.reserved), 0, None)
        return 100 * (left / (left + _HALF))

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:
        """Return the node's room and reservations, and the resource that runs out first or the evidence it awaits."""
        sentences = []
        room, sure, withheld, held = (
            float(values[index]) for values in (nodes.room, nodes.sure, nodes.withheld, nodes.reserved)
        )
        if sure - held < 1 <= sure - held + withheld:
            sentences.append(
                f"room for {sure:.2f} of {sure + withheld:.2f} pods for sure is open while what they take is still "
                f"being learned, less {held:.0f} held, where 1 is needed: wait for their telemetry"
            )
        elif sure - held < 1:
            first = nodes.binding[index]
            sentences.append(
                f"room for {sure:.2f} pods for sure ({room:.2f} expected) less {held:.0f} held, where 1 is needed"
                + (f"; {first} runs out first" if first else "")
            )
        if _learning(nodes)[index]:
            sentences.append(
                "what pods of this kind take is unknown, and another pod has just started there: wait for its telemetry"
            )
        if _beyond(pod, nodes)[index]:
            sentences.append("a node with more of what the pod requests")
        return sentences


def _any(mask: Mask) -> bool:
    """Tell whether a mask has a node, in a quarter of the time of `mask.any()`: each pod asks several times."""
    return bool(np.count_nonzero(mask))


def _lacking(nodes: Candidates) -> Mapping[str, Mask]:
    """Return the nodes without room for one more pod, apart where evidence of what its kind takes would open some."""
    left = nodes.sure - nodes.reserved
    lacking = left < 1
    if not _any(lacking):
        return {}
    partial = lacking & (left + nodes.withheld >= 1)
    return {FULL: lacking ^ partial, PARTIAL: partial}


def _learning(nodes: Candidates) -> Mask:
    """Return (nodes,) True where a pod is there, or on its way, whose kind's cost is an assumption still."""
    if not _any(nodes.unseen):
        return nodes.unseen
    return nodes.unseen & ((nodes.starting > 0) | (nodes.running > 0))


def _beyond(pod: Pod, nodes: Candidates) -> Mask:
    """Return (nodes,) True where the pod requests more than the node's allocatable amount."""
    beyond = np.zeros(len(nodes.names), np.bool_)
    for resource in ("cpu", "memory"):
        amount = pod.requests.get(resource, 0.0)
        whole = nodes.allocatable.get(resource, np.full(len(nodes.names), np.nan))
        if resource == "cpu":
            whole = np.where(np.isnan(whole), nodes.cores, whole)
        beyond |= amount > np.where(np.isnan(whole), np.inf, whole)
    return beyond
