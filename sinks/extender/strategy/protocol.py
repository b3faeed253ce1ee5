"""The protocol that every strategy implements."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sinks.extender.candidate import Array, Candidates, Mask, Pod


class Strategy(Protocol):
    """Filters the nodes that a pod may go to, and scores them.

    Attributes:
        name: Its name in the settings.
    """

    name: str

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by reason, a mask of the nodes that must not take the pod; a reason is a sentence without numbers."""

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) scores from 0 to 100, higher is better; a node without data scores 0."""

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:
        """Return sentences with numbers that tell what must change on the node at this index to admit the pod."""
