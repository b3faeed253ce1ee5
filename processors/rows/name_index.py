"""Names as numbers, so that arrays can hold them.

Numbers are assigned in order of first appearance and mean nothing outside. Unused names are dropped now and then;
otherwise jobs with a new name for each run would accumulate.
"""

import numpy as np
from numpy.typing import NDArray

_SPARE = 1024


class NameIndex:
    """Names, each with a number from 0 on."""

    def __init__(self, names: list[str] | None = None) -> None:
        self.names: list[str] = names or []
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def number(self, name: str) -> int:
        """Return the number of a name; a new one gets the next."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
        return self._numbers[name]

    def find(self, name: str) -> int | None:
        """Return the number of a name, if it has one."""
        return self._numbers.get(name)

    def tidy(self, used: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Drop all but the used numbers once most names are unused.

        Returns:
            The new number of each old one, -1 for those that are gone; None if nothing was dropped.
        """
        if len(self.names) <= _SPARE:
            return None
        kept = np.unique(used[used >= 0])
        if len(self.names) <= 2 * len(kept) + _SPARE:
            return None
        moved = np.full(len(self.names), -1, dtype=np.int64)
        moved[kept] = np.arange(len(kept))
        self.names = [self.names[number] for number in kept]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        return moved
