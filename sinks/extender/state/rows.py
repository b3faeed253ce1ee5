"""Nodes as rows of arrays: every name has one, and columns grow together.

A row outlives its node, since a node that comes back under its name finds its reservations there; who is gone for
good is emptied and its row is given to another.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array, Mask

_FIRST = 64


class Rows:
    """Names of nodes, each with a row, and columns of numbers.

    Attributes:
        names: By row; empty: nobody's.
    """

    def __init__(self, **fills: float) -> None:
        """Make columns by name, each with the value of a row of which nothing is known."""
        self.names: list[str] = []
        self._of: dict[str, int] = {}
        self._free: list[int] = []
        self._fills = dict(fills)
        self._columns = {name: np.full(_FIRST, fill) for name, fill in fills.items()}
        self._users: Counter[str] = Counter()
        self._size = _FIRST

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, column: str) -> Array:
        """Return a column of all rows; writing into it changes it."""
        return self._columns[column]

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def column(self, name: str, fill: float) -> Array:
        """Return a column, made if there is none of the name."""
        if name not in self._columns:
            self._fills[name] = fill
            self._columns[name] = np.full(self._size, fill)
        return self._columns[name]

    def count(self, name: str, row: int, amount: float, users: int) -> None:
        """Add to a column that goes when nobody uses it any more: anybody may think of names.

        Args:
            name: The column.
            row: Where.
            amount: What.
            users: 1: another one uses it from now on; -1: one does no more.
        """
        self.column(name, 0.0)[row] += amount
        self._users[name] += users
        if not self._users[name]:
            del self._users[name], self._columns[name], self._fills[name]

    def find(self, node: str) -> int | None:
        """Return a node's row, if it has one."""
        return self._of.get(node)

    def row(self, node: str) -> int:
        """Return a node's row, a new one if it has none."""
        found = self._of.get(node)
        if found is not None:
            return found
        if self._free:
            row = self._free.pop()
            self.names[row] = node
        else:
            row = len(self.names)
            self.names.append(node)
            if row == self._size:
                self._grow()
        self._of[node] = row
        return row

    def rows(self, nodes: Sequence[str]) -> NDArray[np.intp]:
        """Return the rows of nodes, new ones for those that have none."""
        try:
            if len(nodes) > 1:  # one call for all of them is the fastest that there is
                return np.fromiter(itemgetter(*nodes)(self._of), np.intp, len(nodes))
            return np.array([self._of[node] for node in nodes], np.intp)
        except KeyError:
            return np.fromiter(map(self.row, nodes), np.intp, len(nodes))

    def remove(self, node: str) -> int | None:
        """Empty a node's row and give it away; returns which it was."""
        row = self._of.pop(node, None)
        if row is not None:
            for name, fill in self._fills.items():
                self._columns[name][row] = fill
            self.names[row] = ""
            self._free.append(row)
        return row

    def _grow(self) -> None:
        for name, fill in self._fills.items():
            self._columns[name] = np.concatenate((self._columns[name], np.full(self._size, fill)))
        self._size *= 2


class Taken(Sequence[Any]):
    """Some rows of a list, in an order, without a copy of it."""

    def __init__(self, source: Sequence[Any], rows: NDArray[np.intp]) -> None:
        self._source, self._rows = source, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._source[self._rows[place]]

    def __iter__(self) -> Iterator[Any]:
        return (self._source[row] for row in self._rows.tolist())


class Columns(Mapping[str, Array]):
    """Some rows of columns by name, taken out when they are asked for; NaN where nothing is known of the node.

    A column that nobody has made is 0 for all: a node that does not speak of a resource has none of it.
    """

    def __init__(
        self, source: Rows, prefix: str, keys: Sequence[str], rows: NDArray[np.intp], known: Mask | None = None
    ) -> None:
        self._source, self._prefix, self._keys, self._rows, self._known = source, prefix, keys, rows, known
        self._made: dict[str, Array] = {}

    def __getitem__(self, key: str) -> Array:
        if key not in self._made:
            name = self._prefix + key
            taken = self._source[name][self._rows] if name in self._source else np.zeros(len(self._rows))
            self._made[key] = taken if self._known is None else np.where(self._known, taken, np.nan)
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Growth(Mapping[str, Array]):
    """By how much one column is above another, where it is; by the names of the other."""

    def __init__(self, now: Mapping[str, Array], then: Mapping[str, Array]) -> None:
        self._now, self._then = now, then

    def __getitem__(self, key: str) -> Array:
        return np.maximum(self._now[key] - self._then[key], 0.0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._then)

    def __len__(self) -> int:
        return len(self._then)
