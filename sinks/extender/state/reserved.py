"""The number of reserved pods on each node, by kind of pod.

Kinds are the workload classes that the pod's own node reports; every other pod is of the unnamed kind. What such pods
request is added up, too: a pod that requests half of a node is no mean pod. A cluster has thousands of classes, so the
number of distinct kinds is bounded.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array
from sinks.extender.state.class_capacity import ClassCapacities
from sinks.extender.state.rows import Rows

_MOST = 64
_LEAST = 1e-9
MEAN = ""
STATED = ("cpu", "memory")  # resources, each with a column of what pods of the unnamed kind request
_NONE: Mapping[str, float] = MappingProxyType({})


class Reserved:
    """Counts in columns of `rows`, one for each kind with a counted pod."""

    def __init__(self, rows: Rows, classes: ClassCapacities, prefix: str = "reserved:") -> None:
        """Start at zero; `classes` are the classes that nodes report."""
        self._rows, self._classes, self._prefix = rows, classes, prefix
        self._totals: Counter[str] = Counter()

    def kind(self, workload: str, row: int) -> str:
        """Return the kind to count a pod on a node as; pass the same kind to remove the pod later."""
        is_distinct = self._classes.has(row, workload) and (workload in self._totals or len(self._totals) < _MOST)
        return workload if is_distinct else MEAN

    def add(self, row: int, kind: str, sign: int, requests: Mapping[str, float] = _NONE) -> None:
        """Add a pod, and what it requests, to the count (sign 1), or remove it (sign -1)."""
        if kind == MEAN:
            for resource in STATED:
                self._rows[f"stated:{resource}"][row] += sign * requests.get(resource, 0.0)
        self._rows.count(self._prefix + kind, row, sign, sign)
        self._totals[kind] += sign
        if not self._totals[kind]:
            del self._totals[kind]

    def clear(self, row: int) -> None:
        """Reset the counts of a node."""
        for kind, column in list(self.columns()):
            if column[row]:
                self.add(row, kind, -int(column[row]))

    def taken(self, workload: str, rows: NDArray[np.intp], room: Array, *, requests: bool) -> Array:
        """Return (nodes,) the reserved room in pods of a class.

        Args:
            workload: The class.
            rows: Rows of the nodes.
            room: (nodes,) how many pods of the class fit.
            requests: Whether a pod of a class that its node does not report takes what it requests if that is more than
                a mean pod.
        """
        total, unreported = np.zeros(len(rows)), np.zeros(len(rows))
        for kind, column in self.columns():
            taken = column[rows]
            if not taken.any():  # most kinds, where a node or two are asked about
                continue
            if kind != workload:
                taken = taken * self._classes.worth(room, kind, rows)
            if kind == MEAN:
                unreported = taken
            else:
                total += taken
        for resource in STATED if requests else ():
            stated, free = self._rows[f"stated:{resource}"][rows], self._rows[f"free:{resource}"][rows]
            share = np.minimum(stated / np.maximum(free, _LEAST), 1.0)
            unreported = np.fmax(unreported, share * room)
        return total + unreported

    def columns(self) -> Iterator[tuple[str, Array]]:
        """Yield each kind with reserved pods, and their number by row."""
        for kind in self._totals:
            yield kind, self._rows[self._prefix + kind]

    def freed(self, workload: str, kind: str, rows: NDArray[np.intp], room: Array) -> Array:
        """Return (nodes,) the room for a class that one pod of a kind leaves.

        At most one pod: the ratio of kinds is estimated from the room that is left, which is little on a full node.

        Args:
            workload: The class.
            kind: The kind of the pod that leaves.
            rows: Rows of the nodes.
            room: (nodes,) how many pods of the class fit.
        """
        return np.ones(len(rows)) if kind == workload else np.minimum(self._classes.worth(room, kind, rows), 1.0)
