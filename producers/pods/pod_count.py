"""Number of running pods on the node, by the census of its cgroup tree.

A pod with a container other than its pause container counts as one, and so does a container outside pods. An agent
that sees only its own cgroup namespace counts none: mount the host's.
"""

from producers.pods.census import Census
from producers.source import NO_FACTS, Values


class Pods:
    """Number of running pods; None without a cgroup tree."""

    name = "pods"
    metrics = ("pods",)
    path = None
    optional = False
    facts = NO_FACTS

    def __init__(self, census: Census) -> None:
        self._census = census

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - a level, from a tree
        """Count the pods."""
        account = self._census.take()
        return (None if account is None else float(sum(pod.running > 0 for pod in account.pods)),)
