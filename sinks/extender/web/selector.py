"""What the HTTP side asks of the side that decides."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Filtered(NamedTuple):
    """Answer to filter.

    Attributes:
        passing: Names of nodes that the pod may go to, out of those asked about.
        failed: Why others are turned down, where evicting pods could help.
        unresolvable: Why others are turned down, where it could not.
        error: The question cannot be answered; everything else is empty.
    """

    passing: Sequence[str]
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    error: str = ""


class Placer(Protocol):
    """Decides. Pods come as the API has them (a decoded v1.Pod).

    All of these raise ValueError when the pod is none: the message says what is wrong with it.
    """

    async def filter(self, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Say which nodes a pod may go to; in argmax mode a place is held when this returns."""

    async def prioritize(self, pod: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Return scores from 0 to 10; nodes that are not named get 0."""

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind a pod; returns what went wrong, empty: nothing. Binding it again to the same node is no fault."""

    async def preempt(
        self, pod: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return those nodes, with the UIDs of the victims, on which the pod fits once they are gone."""
