"""How many pods are reserved on each node, by kind of pod.

Kinds are the workload classes that nodes say something of; every other pod is of the kind without a name, which is
the node's mean pod. A cluster has thousands of classes, so the kinds told apart at any one time are bounded.
"""

from collections import Counter
from collections.abc import Iterator

from sinks.extender.candidate import Array
from sinks.extender.state.class_capacity import ClassRooms
from sinks.extender.state.rows import Rows

_MOST = 64
MEAN = ""


class Reserved:
    """Counts in columns of `rows`, one for each kind of which any pod is counted."""

    def __init__(self, rows: Rows, classes: ClassRooms, prefix: str = "reserved:") -> None:
        """Count nothing; `classes` are those that nodes say something of."""
        self._rows, self._classes, self._prefix = rows, classes, prefix
        self._totals: Counter[str] = Counter()

    def kind(self, workload: str) -> str:
        """Return the kind to count a pod as; whoever adds it takes the same kind off again."""
        told = workload in self._classes and (workload in self._totals or len(self._totals) < _MOST)
        return workload if told else MEAN

    def add(self, row: int, kind: str, sign: int) -> None:
        """Count a pod, or count it no more."""
        self._rows.count(self._prefix + kind, row, sign, sign)
        self._totals[kind] += sign
        if not self._totals[kind]:
            del self._totals[kind]

    def clear(self, row: int) -> None:
        """Count no pods of a node any more."""
        for kind, column in list(self.columns()):
            if column[row]:
                self.add(row, kind, -int(column[row]))

    def columns(self) -> Iterator[tuple[str, Array]]:
        """Yield each kind of which pods are reserved, and their number by row."""
        for kind in self._totals:
            yield kind, self._rows[self._prefix + kind]
