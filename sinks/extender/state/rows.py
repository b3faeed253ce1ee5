"""Nodes as rows of arrays: every name has a row, and all columns grow together.

A row outlives its node, so that a node that returns under its name keeps its reservations. The row of a node that is
gone for good is cleared and reused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array, Mask
from sinks.extender.name_list import NameList
from sinks.extender.state import name_table
from sinks.extender.state.name_table import NameTable

_FIRST = 64
_MISSING = -1


class Rows:
    """Names of nodes, each with a row, and columns of numbers.

    Attributes:
        names: By row; empty: the row is free, or that of all nodes that have none.
    """

    def __init__(self, **fills: float) -> None:
        """Create columns by name, each with the value of an empty row."""
        self.names: list[str] = []
        self._of: dict[str, int] = {}
        self._free: list[int] = []
        self._empty: int | None = None
        self._fills = dict(fills)
        self._columns = {name: np.full(_FIRST, fill) for name, fill in fills.items()}
        self._users: Counter[str] = Counter()
        self._table: NameTable | None = None
        self._is_table_made = False
        self._size = _FIRST

    def __len__(self) -> int:
        return len(self._of)

    def __getitem__(self, column: str) -> Array:
        """Return a column of all rows; writing into it changes it."""
        return self._columns[column]

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def column(self, name: str, fill: float) -> Array:
        """Return a column; create it if it does not exist."""
        if name not in self._columns:
            self._fills[name] = fill
            self._columns[name] = np.full(self._size, fill)
        return self._columns[name]

    def count(self, name: str, row: int, amount: float, users: int) -> None:
        """Add to a column that is removed with its last user, because column names come from users' pods.

        Args:
            name: The column.
            row: The row.
            amount: The amount to add.
            users: Change of the number of users: 1 or -1.
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
        row = self._of.get(node)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self.names[row] = node
        else:
            row = self._append(node)
        self._of[node] = row
        self._is_table_made = False
        return row

    def rows(self, nodes: Sequence[str]) -> NDArray[np.intp]:
        """Return the rows of nodes; those that have none share one row that stays empty.

        Names come from requests, so a new row for each would let a client fill the memory with invented ones.
        """
        if isinstance(nodes, NameList) and (table := self._names_table()) is not None:
            rows = table.find(nodes, _MISSING)
            missing = rows == _MISSING
            if missing.any():
                rows[missing] = self._no_node()
            return rows
        try:
            if len(nodes) > 1:  # a single call for all nodes is fastest
                return np.fromiter(itemgetter(*nodes)(self._of), np.intp, len(nodes))
            return np.array([self._of[node] for node in nodes], np.intp)
        except KeyError:
            return np.fromiter(map(self._of.get, nodes, repeat(self._no_node())), np.intp, len(nodes))

    def remove(self, node: str) -> int | None:
        """Clear and free a node's row; returns the row."""
        row = self._of.pop(node, None)
        if row is not None:
            self._is_table_made = False
            for name, fill in self._fills.items():
                self._columns[name][row] = fill
            self.names[row] = ""
            self._free.append(row)
        return row

    def _names_table(self) -> NameTable | None:
        """Return a table of all nodes, made at the first request after a change; None: it cannot be made."""
        if not self._is_table_made:
            self._table, self._is_table_made = name_table.of(list(self._of), list(self._of.values())), True
        return self._table

    def _no_node(self) -> int:
        """Return the row of all nodes that have none."""
        if self._empty is None:
            self._empty = self._append("")
        return self._empty

    def _append(self, node: str) -> int:
        self.names.append(node)
        if len(self.names) > self._size:
            self._grow()
        return len(self.names) - 1

    def _grow(self) -> None:
        for name, fill in self._fills.items():
            self._columns[name] = np.concatenate((self._columns[name], np.full(self._size, fill)))
        self._size *= 2


class Taken(Sequence[Any]):
    """A view of selected rows of a list, in order, without a copy."""

    def __init__(self, source: Sequence[Any], rows: NDArray[np.intp]) -> None:
        self._source, self._rows = source, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: Any) -> Any:
        return self._source[self._rows[position]]

    def __iter__(self) -> Iterator[Any]:
        return (self._source[row] for row in self._rows.tolist())


class Columns(Mapping[str, Array]):
    """A lazy view of selected rows of columns, by name; NaN where a row is not valid.

    A missing column is 0 in all rows: a node that does not report a resource has none of it.
    """

    def __init__(
        self, source: Rows, prefix: str, keys: Sequence[str], rows: NDArray[np.intp], valid: Mask | None = None
    ) -> None:
        self._source, self._prefix, self._keys, self._rows, self._valid = source, prefix, keys, rows, valid
        self._made: dict[str, Array] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Array:
        if key not in self._made:
            name = self._prefix + key
            taken = self._source[name][self._rows] if name in self._source else np.zeros(len(self._rows))
            self._made[key] = taken if self._valid is None else np.where(self._valid, taken, np.nan)
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Growth(Mapping[str, Array]):
    """The increase of columns since an earlier state, at least 0; by the names of the earlier state."""

    def __init__(self, now: Mapping[str, Array], then: Mapping[str, Array]) -> None:
        self._now, self._then = now, then

    def __getitem__(self, key: str) -> Array:
        return np.maximum(self._now[key] - self._then[key], 0.0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._then)

    def __len__(self) -> int:
        return len(self._then)
