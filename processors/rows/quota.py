"""How many nodes of a partition may have state: names are invented at no cost, and state is not.

A node that Kubernetes knows, by its facts, always gets state. Any other gets it while fewer than the limit have some,
so those that came first keep it. A node that has been silent for long gives its place back
(`processors.rows.silence`). All that is decided here follows from the messages in stream order, so a replay
decides the same.
"""

from collections.abc import Container, Iterable
from typing import Any

from processors.rows.silence import Passed, silent
from schemas.messages.facts import UNBOUND, NodeFacts
from schemas.sections.service import Process
from schemas.subject import PARTITIONS

LEAST = 8000  # nodes of all partitions together, where Kubernetes knows few or there is none
_EACH = 4  # times the nodes that Kubernetes knows: those that it does not know yet, and machines beside it
_MOST_KNOWN = 1 << 14  # nodes with facts: several times what one partition of the largest clusters has


class NodeQuota:
    """Nodes that may have state, each with the event second in which it was last heard.

    Attributes:
        refused: Messages left out, since their node may have no state.
        newest: Node of the last of them; empty: there was none.
        pods_max: Pods of all nodes that may have statistics.
        refused_pods: Times that a pod was left out because there were too many.
    """

    def __init__(self, settings: Process, partitions: int = PARTITIONS) -> None:
        """Start empty; `partitions` is how many share the nodes."""
        self._nodes_max, self.pods_max = settings.nodes_max, settings.pods_max
        self._least = LEAST // partitions
        self.refused_pods = 0
        self._heard: dict[str, int] = {}
        self._with_facts: dict[str, None] = {}
        self._deleted: dict[str, None] = {}
        self.refused, self.newest = 0, ""

    @property
    def limit(self) -> int:
        """Nodes that may have state without facts."""
        return self._nodes_max or max(self._least, _EACH * len(self._with_facts))

    @property
    def deleted(self) -> Container[str]:
        """The nodes that have been heard and that Kubernetes has deleted."""
        return self._deleted

    def admits(self, item: object, second: int) -> bool:
        """Return whether something decoded is folded in an event second; call once for each, in stream order.

        What is of no node, as the global model, always is.
        """
        # A block is a tuple. To ask a message for an attribute that it does not declare takes a microsecond.
        is_block = isinstance(item, tuple)
        node: str | None = getattr(getattr(item, "message", None) if is_block else item, "node", None)
        if not is_block and isinstance(item, NodeFacts):
            if not item.deleted and item.node not in self._with_facts and len(self._with_facts) >= _MOST_KNOWN:
                return self._refuse(item.node)
            if not item.deleted:
                self._with_facts[item.node] = None
                self._deleted.pop(item.node, None)
                return True
            self._with_facts.pop(item.node, None)
            if item.node in self._heard:
                self._deleted[item.node] = None
            return True
        if node is None or node == UNBOUND:
            return True
        if node not in self._heard and node not in self._with_facts and len(self._heard) >= self.limit:
            return self._refuse(node)
        self._heard[node] = second
        return True

    def _refuse(self, node: str) -> bool:
        self.refused, self.newest = self.refused + 1, node
        return False

    def forget(self, passed: Passed) -> None:
        """Take the places of nodes that have been silent for long."""
        for node in silent(self._heard, self._deleted, passed):
            del self._heard[node]
            self._deleted.pop(node, None)

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "heard": self._heard,
            "known": list(self._with_facts),
            "deleted": list(self._deleted),
            "refused": self.refused,
            "newest": self.newest,
        }

    def load(self, dumped: dict[str, Any] | None, nodes: Iterable[str], admitted: Iterable[str], second: int) -> None:
        """Take over what `dump` returned; None: an older program has stored state of these nodes, and facts of some."""
        dumped = dumped or {"heard": dict.fromkeys(nodes, second), "known": admitted, "refused": 0, "newest": ""}
        self._heard, self._with_facts = dict(dumped["heard"]), dict.fromkeys(dumped["known"])
        self._deleted = dict.fromkeys(dumped.get("deleted", ()))
        self.refused, self.newest = dumped["refused"], dumped["newest"]
