"""The number of reserved pods on each node, by kind of pod.

Kinds are the workload classes that nodes report; every other pod is of the unnamed kind, which is the node's mean pod.
A cluster has thousands of classes, so the number of distinct kinds is bounded.

A report that knows what a pod of a class takes charges that for each running pod of the class from the first second on,
and says how many it has counted. So it covers as many starts, although smoothed usage does not show them yet. And while
it counts more pods than the API has, those that have ended since still take room in it, which is free. The API may be
late: an end that the report has seen frees nothing a second time, since the report counts that pod no more. A pod that
the watch has not reported would keep the count high; therefore an end is believed to be unseen for a few seconds only.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array
from sinks.extender.state.class_capacity import ClassCapacities
from sinks.extender.state.rows import Rows

_MOST = 64
MEAN = ""
_UNSEEN_US = 3_000_000  # two reports, and the time until the second one is heard
_NONE: Mapping[str, float] = MappingProxyType({})


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

    def room(self, workload: str, rows: NDArray[np.intp], *, most: float = np.inf) -> Array:
        """Return (nodes,) the room of all counted pods, in pods of a class; a pod of another kind has `most` at most.

        The ratio of kinds is estimated from the room that is left, which is little on a full node.
        """
        total = np.zeros(len(rows))
        for kind, column in self.columns():
            total += column[rows] * np.minimum(self._classes.worth(workload, kind, rows), most)
        return total


class Counted:
    """Counts of reports beside the pods that they cover.

    Attributes:
        freed: Pods that have ended and that the last report still counts.
    """

    def __init__(self, rows: Rows, classes: ClassCapacities) -> None:
        """Start without reports; `classes` are the classes that nodes report."""
        self.freed = Reserved(rows, classes, "freed:")
        self._reported: dict[int, Mapping[str, float]] = {}
        self._covered: Counter[tuple[int, str]] = Counter()
        self._ended_us: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._freed: dict[tuple[int, str], tuple[str, int]] = {}

    def report(self, row: int, at_us: int, counted: Mapping[str, float]) -> None:
        """Store a node's report: the running pods of each class that it charges with the known cost of the class."""
        self._reported[row] = counted
        for workload, ends in list(self._ended_us.get(row, {}).items()):
            ends[:] = [ended_us for ended_us in ends if ended_us + _UNSEEN_US >= at_us]
            self._update(row, workload)
            if not ends:
                del self._ended_us[row][workload]

    def covers_more(self, row: int, workload: str) -> bool:
        """Tell whether the report counts more pods of a class than are covered."""
        return self._covered[row, workload] < self._reported.get(row, _NONE).get(workload, 0.0)

    def start(self, row: int, workload: str) -> None:
        """Add a pod that is covered now."""
        self._covered[row, workload] += 1
        self._update(row, workload)

    def end(self, row: int, workload: str, ended_us: int | None) -> None:
        """Remove a covered pod that ended at that time; None: it has not ended, or the time is unknown."""
        self._covered[row, workload] -= 1
        if not self._covered[row, workload]:
            del self._covered[row, workload]
        if ended_us is not None:
            self._ended_us[row][workload].append(ended_us)
        self._update(row, workload)

    def forget(self, row: int) -> None:
        """Forget the reports of a node, and the ends that they have not seen."""
        self._reported.pop(row, None)
        for workload in list(self._ended_us.pop(row, {})):
            self._update(row, workload)

    def _update(self, row: int, workload: str) -> None:
        """Count as freed what the report counts beyond the pods that are covered, as far as pods have ended."""
        surplus = int(self._reported.get(row, _NONE).get(workload, 0.0)) - self._covered[row, workload]
        ended = len(self._ended_us[row][workload]) if row in self._ended_us else 0
        wanted = max(0, min(surplus, ended))
        kind, before = self._freed.pop((row, workload), (self.freed.kind(workload), 0))
        if wanted != before:
            self.freed.add(row, kind, wanted - before)
        if wanted:
            self._freed[row, workload] = kind, wanted
