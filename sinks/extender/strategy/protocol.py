"""What every strategy offers."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sinks.extender.candidate import Array, Candidates, Mask, Pod


class Strategy(Protocol):
    """Decides which nodes a pod may go to, and which of them is best.

    Attributes:
        name: As settings name it.
    """

    name: str

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by reason, the nodes that the pod must not go to; a reason is one sentence without numbers."""

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) scores from 0 to 100, more is better; where nothing is known of a node: 0."""

    def needs(self, pod: Pod, nodes: Candidates, place: int) -> Sequence[str]:
        """Say with numbers what would have to change at the node in this place for the pod to go there."""
