"""Finds thousands of names at once: a hash table in arrays, whose every step is taken for all names together.

Names are compared as integers of eight bytes, so that what is found is exactly what was asked; the hash only says where
to look.
"""

from collections.abc import Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from sinks.extender import name_list
from sinks.extender.name_list import NameList, Uint64s

_EMPTY = -1
_SPACE = 4  # table slots a name
_MOST_STEPS = 32  # beyond which somebody chose the names
_FACTOR = 0x9E37_79B9_7F4A_7C15


class NameTable:
    """Rows by name; made once for all names."""

    def __init__(self, names: NameList, rows: NDArray[np.intp]) -> None:
        """Take at least one name, all distinct, and their rows.

        Raises:
            ValueError: Too many names have the same hash.
        """
        self._words, self._lengths, self._rows = names.words, names.lengths, rows
        self._bits = max(6, (_SPACE * len(names)).bit_length())
        self._table = np.full(1 << self._bits, _EMPTY, np.intp)
        waiting, slots = np.arange(len(names)), self._slots(names.words)
        for _ in range(_MOST_STEPS):
            free = self._table[slots] == _EMPTY
            self._table[slots[free]] = waiting[free]  # of several names in one slot, the last one stays
            left = self._table[slots] != waiting
            waiting, slots = waiting[left], self._next(slots[left])
            if not len(waiting):
                return
        raise ValueError("too many names have the same hash")

    def find(self, names: NameList, missing: int) -> NDArray[np.intp]:
        """Return (names,) the row of each; `missing` where the table does not have it."""
        rows = np.full(len(names), missing, np.intp)
        # A name with more words than every known one has another length, too.
        nothing = np.zeros(len(names), np.uint64)
        words = [word for word, _ in zip(chain(names.words, repeat(nothing)), self._words, strict=False)]
        waiting, slots = np.arange(len(names)), self._slots(words)
        for _ in range(_MOST_STEPS):
            candidates = self._table[slots]
            used = candidates != _EMPTY
            if not used.all():
                waiting, slots, candidates = waiting[used], slots[used], candidates[used]
            same = self._lengths[candidates] == names.lengths[waiting]
            for own, asked in zip(self._words, words, strict=True):
                same &= own[candidates] == asked[waiting]
            if same.all():
                rows[waiting] = self._rows[candidates]
                break
            rows[waiting[same]] = self._rows[candidates[same]]
            waiting, slots = waiting[~same], self._next(slots[~same])
        return rows

    def _slots(self, words: Uint64s) -> NDArray[np.intp]:
        """Return (names,) where to look first."""
        mixed = np.zeros(len(words[0]), np.uint64)
        for word in words:
            mixed = (mixed ^ word) * np.uint64(_FACTOR)
            mixed ^= mixed >> np.uint64(32)
        return (mixed >> np.uint64(64 - self._bits)).astype(np.intp)

    def _next(self, slots: NDArray[np.intp]) -> NDArray[np.intp]:
        return (slots + 1) & ((1 << self._bits) - 1)


def of(names: Sequence[str], rows: Sequence[int]) -> NameTable | None:
    """Return a table of distinct names; None: there is none, one of them is not plain, or they do not fit."""
    listed = name_list.of(names)
    if listed is None:
        return None
    try:
        return NameTable(listed, np.array(rows, np.intp))
    except ValueError:
        return None
