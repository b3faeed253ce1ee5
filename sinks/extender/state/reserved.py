"""The number of reserved pods on each node, by kind of pod.

Kinds are the workload classes that nodes report; every other pod is of the unnamed kind, which is the node's mean pod.
A cluster has thousands of classes, so the number of distinct kinds is bounded.
"""

from collections import Counter
from collections.abc import Iterator

from sinks.extender.candidate import Array
from sinks.extender.state.class_capacity import ClassCapacities
from sinks.extender.state.rows import Rows

_MOST = 64
MEAN = ""


class Reserved:
    """Counts in columns of `rows`, one for each kind with a counted pod."""

    def __init__(self, rows: Rows, classes: ClassCapacities, prefix: str = "reserved:") -> None:
        """Start at zero; `classes` are the classes that nodes report."""
        self._rows, self._classes, self._prefix = rows, classes, prefix
        self._totals: Counter[str] = Counter()

    def kind(self, workload: str) -> str:
        """Return the kind to count a pod as; pass the same kind to remove the pod later."""
        is_distinct = workload in self._classes and (workload in self._totals or len(self._totals) < _MOST)
        return workload if is_distinct else MEAN

    def add(self, row: int, kind: str, sign: int) -> None:
        """Add a pod to the count (sign 1), or remove it (sign -1)."""
        self._rows.count(self._prefix + kind, row, sign, sign)
        self._totals[kind] += sign
        if not self._totals[kind]:
            del self._totals[kind]

    def clear(self, row: int) -> None:
        """Reset the counts of a node."""
        for kind, column in list(self.columns()):
            if column[row]:
                self.add(row, kind, -int(column[row]))

    def columns(self) -> Iterator[tuple[str, Array]]:
        """Yield each kind with reserved pods, and their number by row."""
        for kind in self._totals:
            yield kind, self._rows[self._prefix + kind]
