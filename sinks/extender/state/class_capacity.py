"""How many pods of each workload class fit on each node, as nodes report it.

A node tells of a few classes, a cluster of thousands; so what is kept is what each node says, and for the classes that
are asked about a column over all nodes besides.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array
from sinks.extender.state.rows import Rows

_COLUMNS = 32


class Told(NamedTuple):
    """What a node says of one class: pods that fit, how many surely do, and how much of their cost is assumed."""

    room: float
    sure: float
    assumed: float


_NOTHING = Told(np.nan, np.nan, np.nan)


class ClassRooms:
    """Rooms by row and class."""

    def __init__(self, rows: Rows) -> None:
        """Know of no class."""
        self._rows = rows
        self._said: dict[int, Mapping[str, Told]] = {}
        self._reporting: Counter[str] = Counter()
        self._columns: OrderedDict[str, Array] = OrderedDict()

    def __contains__(self, workload: str) -> bool:
        """Tell whether any node says something of a class."""
        return workload in self._reporting

    def put(self, row: int, classes: Mapping[str, Told]) -> None:
        """Take what a node says of all the classes that it knows."""
        before = self._said.get(row, {})
        if before.keys() != classes.keys():
            self._reporting.update(classes.keys() - before.keys())
            for gone in before.keys() - classes.keys():
                self._reporting[gone] -= 1
                if not self._reporting[gone]:
                    del self._reporting[gone]
        if classes:
            self._said[row] = classes
        else:
            self._said.pop(row, None)
        for workload, column in self._columns.items():
            if row < len(column):
                column[row] = classes.get(workload, _NOTHING)

    def of(self, workload: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes,) pods of a class that fit; where the node does not know the class, of its mean pod."""
        mean = self._rows["room"][rows]
        if workload not in self._reporting:
            return mean
        own = self._column(workload)[rows, 0]
        return np.where(np.isnan(own), mean, own)

    def told(self, workload: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes, 3) what nodes say of a class, as `Told`; NaN where they do not know it."""
        if workload not in self._reporting:
            return np.full((len(rows), 3), np.nan)
        return self._column(workload)[rows]

    def _column(self, workload: str) -> Array:
        column = self._columns.pop(workload, None)
        size = len(self._rows["room"])
        if column is None or len(column) != size:
            column = np.full((size, 3), np.nan)
            for row, classes in self._said.items():
                column[row] = classes.get(workload, _NOTHING)
        self._columns[workload] = column
        if len(self._columns) > _COLUMNS:
            self._columns.popitem(last=False)
        return column
