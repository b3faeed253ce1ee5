"""The protocol between the HTTP server and the node selection."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Filtered(NamedTuple):
    """Result of a filter call.

    Attributes:
        passing: Names of the nodes that the pod may go to.
        failed: Reasons by refused node, if an eviction could help.
        unresolvable: Reasons by refused node, if an eviction could not help.
        error: Why the call cannot be answered; all other fields are empty then.
    """

    passing: Sequence[str]
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    error: str = ""


class Selector(Protocol):
    """Selects nodes. Pods are decoded v1.Pod objects.

    All methods raise ValueError if the pod is invalid; the message names the error.
    """

    async def filter(self, pod: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Return the nodes that a pod may go to; in argmax mode, room is reserved when this returns."""

    async def prioritize(self, pod: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Return scores from 0 to 10; absent nodes get 0."""

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind a pod; returns the error, empty: none. Binding it to the same node again succeeds."""

    async def preempt(
        self, pod: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return the nodes, with the victims' UIDs, on which the pod fits after their eviction."""
