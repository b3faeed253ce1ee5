"""CARICO's rule: the pod goes where the most pods of its kind still fit, by telemetry, less the places that are held.

Room is a number of pods without an upper bound, and a score ends at 100. With x the room less what is held the score
is 100 x / (x + 10): half of it is reached at ten pods, and it rises at every x, so that different rooms score
differently, up to a million pods as finely as to a twentieth of a pod.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod

FULL = "no room for another pod of its kind"
_HALF = 10.0


class Availability:
    """Ranks by room less what is held; nodes whose room is unknown pass, and score 0."""

    name = "availability"

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:  # noqa: ARG002 # room is of the pod's kind
        """Return the nodes with room for less than one pod beside those that are held."""
        full = nodes.room - nodes.reserved < 1
        return {FULL: full} if full.any() else {}

    def score(self, pod: Pod, nodes: Candidates) -> Array:  # noqa: ARG002
        """Return (nodes,) scores from 0 to 100, strictly rising with room less what is held."""
        left = np.clip(np.nan_to_num(nodes.room - nodes.reserved), 0, None)
        return 100 * (left / (left + _HALF))

    def needs(self, pod: Pod, nodes: Candidates, place: int) -> Sequence[str]:  # noqa: ARG002
        """Say how much room there is, how much of it is held, and what runs out first."""
        room, held = float(nodes.room[place]), float(nodes.reserved[place])
        if not room - held < 1:
            return []
        first = nodes.binding[place]
        return [
            f"room for {room:.2f} pods less {held:.0f} held, where 1 is needed"
            + (f"; {first} runs out first" if first else "")
        ]
