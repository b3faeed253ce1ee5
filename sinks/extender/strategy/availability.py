"""CARICO's rule: prefer the node with the most room for pods of the same kind, less its reservations.

The filter uses the lower bound of the room and the score uses the mean, so a node with few measurements gains nothing
from its uncertainty. The cost of a pod's kind is an assumption while a report says so, and for a kind that a report
does not name until telemetry has shown a pod of it for a minute, on whichever node. Meanwhile the strategy admits one
such pod per node, and none where any pod has just started, and waits until telemetry shows what it takes, so a new
cluster fills as fast as evidence arrives. No node gets a pod that requests more than the node has.

Room has no upper bound, but scores end at 100. With x the room less reservations, the score is 100 x / (x + 10): ten
pods score 50. The score rises strictly with x, so different rooms score differently. Up to a million pods, it resolves
a twentieth of a pod.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod

FULL = "no room for another pod of its kind"
LEARNING = "what a pod of its kind takes is unknown, and another pod has just started there"
BEYOND = "the node is smaller than what the pod requests"
_HALF = 10.0


class Availability:
    """Ranks by room less reservations; nodes whose room is unknown pass and score 0."""

    name = "availability"

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return the nodes whose lower bound leaves no room for one more pod beside the reservations."""
        reasons = {
            BEYOND: _beyond(pod, nodes),
            FULL: nodes.sure - nodes.reserved < 1,
            LEARNING: _learning(nodes),
        }
        return {reason: mask for reason, mask in reasons.items() if mask.any()}

    def score(self, pod: Pod, nodes: Candidates) -> Array:  # noqa: ARG002
        """Return (nodes,) scores from 0 to 100, which rise strictly with room less reservations."""
        left = np.clip(np.nan_to_num(nodes.room - nodes.reserved), 0, None)
        return 100 * (left / (left + _HALF))

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:
        """Return the node's room, its reservations and the resource that runs out first."""
        sentences = []
        room, sure, held = float(nodes.room[index]), float(nodes.sure[index]), float(nodes.reserved[index])
        if sure - held < 1:
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


def _learning(nodes: Candidates) -> Mask:
    """Return (nodes,) True where a pod is there, or on its way, whose kind's cost is an assumption still."""
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
