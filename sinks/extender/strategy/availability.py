"""CARICO's rule: the pod goes where the most pods of its kind still fit, by telemetry, less the places that are held.

A node is asked for what it is sure of, and ranked by what it expects: one that has measured little is not trusted
more for it. Where nobody has seen a pod of the kind, its cost is an assumption, so one is let in at a time and the next
waits until telemetry shows the first: a fresh cluster is filled as fast as evidence comes. No node gets a pod that
asks for more than the node has.

Room is a number of pods without an upper bound, and a score ends at 100. With x the room less what is held the score
is 100 x / (x + 10): half of it is reached at ten pods, and it rises at every x, so that different rooms score
differently, up to a million pods as finely as to a twentieth of a pod.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod

FULL = "no room for another pod of its kind"
LEARNING = "what a pod of its kind takes is unknown, and another one is just starting there"
BEYOND = "the node is smaller than what the pod requests"
_HALF = 10.0


class Availability:
    """Ranks by room less what is held; nodes whose room is unknown pass, and score 0."""

    name = "availability"

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return the nodes with sure room for less than one pod beside those that are held."""
        reasons = {
            BEYOND: _beyond(pod, nodes),
            FULL: nodes.sure - nodes.reserved < 1,
            LEARNING: nodes.unseen & (nodes.reserved > 0),
        }
        return {reason: mask for reason, mask in reasons.items() if mask.any()}

    def score(self, pod: Pod, nodes: Candidates) -> Array:  # noqa: ARG002
        """Return (nodes,) scores from 0 to 100, strictly rising with room less what is held."""
        left = np.clip(np.nan_to_num(nodes.room - nodes.reserved), 0, None)
        return 100 * (left / (left + _HALF))

    def needs(self, pod: Pod, nodes: Candidates, place: int) -> Sequence[str]:
        """Say how much room there is, how much of it is held, and what runs out first."""
        found = []
        room, sure, held = float(nodes.room[place]), float(nodes.sure[place]), float(nodes.reserved[place])
        if sure - held < 1:
            first = nodes.binding[place]
            found.append(
                f"room for {sure:.2f} pods for sure ({room:.2f} expected) less {held:.0f} held, where 1 is needed"
                + (f"; {first} runs out first" if first else "")
            )
        if nodes.unseen[place] and held > 0:
            found.append("another pod of unknown cost is just starting there; wait until telemetry shows it")
        if _beyond(pod, nodes)[place]:
            found.append("a node with more of what the pod requests")
        return found


def _beyond(pod: Pod, nodes: Candidates) -> Mask:
    """Return (nodes,) True where the pod requests more than pods may have there in all."""
    beyond = np.zeros(len(nodes.names), np.bool_)
    for resource in ("cpu", "memory"):
        amount = pod.requests.get(resource, 0.0)
        whole = nodes.allocatable.get(resource, np.full(len(nodes.names), np.nan))
        if resource == "cpu":
            whole = np.where(np.isnan(whole), nodes.cores, whole)
        beyond |= amount > np.where(np.isnan(whole), np.inf, whole)
    return beyond
