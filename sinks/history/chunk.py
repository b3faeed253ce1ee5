"""Rows that wait for a flush, as columns: a few hundred messages at a time become a frame.

Messages are many small objects. Thousands of them that live for seconds cost memory, and time of the garbage collector,
which walks over all of them again and again; in columns, the same rows take a tenth of the memory and are one object.
"""

import numpy as np
import polars as pl

from sinks.history.table import Kept, Table

_MESSAGES = 512


class Chunks:
    """The rows of one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._frames: list[pl.DataFrame] = []
        self._kept: list[Kept] = []
        self._sequences: list[int] = []
        self._rows: list[int] = []

    def append(self, kept: Kept, sequence: int, rows: int) -> None:
        """Add what is kept of a message of so many rows."""
        self._kept.append(kept)
        self._sequences.append(sequence)
        self._rows.append(rows)
        if len(self._kept) >= _MESSAGES:
            self._convert()

    def frame(self) -> pl.DataFrame:
        """Return all rows, in the order in which they came."""
        if self._kept:
            self._convert()
        if len(self._frames) > 1:
            self._frames = [pl.concat(self._frames)]
        return self._frames[0]

    def _convert(self) -> None:
        sequences = np.repeat(np.array(self._sequences, dtype=np.int64), self._rows)
        self._frames.append(self._table.frame(self._kept).with_columns(sequence=pl.Series(sequences)))
        self._kept, self._sequences, self._rows = [], [], []
