"""What Kubernetes gives to pods of each node, as its facts say."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.messages.facts import NodeFacts

Array = NDArray[np.float64]


class Allocatable:
    """Version of the facts, cores and bytes by node."""

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: dict[str, tuple[int, float, float]] = {}

    def learn(self, facts: NodeFacts) -> None:
        """Take in what Kubernetes says of a node; an older version changes nothing."""
        given = facts.allocatable
        if facts.version < self._nodes.get(facts.node, (0,))[0]:
            return
        if facts.deleted or "cpu" not in given or "memory" not in given:
            self._nodes.pop(facts.node, None)
        else:
            self._nodes[facts.node] = facts.version, given["cpu"], given["memory"]

    def of(self, names: Sequence[str], sizes: Array) -> Array:
        """Return what Kubernetes gives to pods (nodes, resources), or what the machine has (nodes, resources)."""
        unknown = (0, np.nan, np.nan)
        given = np.array([self._nodes.get(name, unknown)[1:] for name in names]).reshape(-1, 2)
        return np.where(np.isnan(given), sizes, given)

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return dict(self._nodes)

    def load(self, dumped: Mapping[str, Any]) -> None:
        """Take over what `dump` returned."""
        self._nodes = {node: (*facts,) for node, facts in dumped.items()}
