"""Rows that wait for a flush, as columns: a few hundred messages at a time become a frame.

Messages are many small objects. Thousands of them that live for seconds cost memory, and time of the garbage collector,
which walks over all of them again and again; in columns, the same rows take a tenth of the memory and are one object.
"""

import polars as pl

from schemas.messages.base import Message
from sinks.history.table import Table

_MESSAGES = 512


class Chunks:
    """The rows of one table."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._frames: list[pl.DataFrame] = []
        self._messages: list[Message] = []
        self._sequences: list[int] = []

    def append(self, message: Message, sequence: int, rows: int) -> None:
        """Add a message of so many rows."""
        self._messages.append(message)
        self._sequences.extend([sequence] * rows)
        if len(self._messages) >= _MESSAGES:
            self._convert()

    def frame(self) -> pl.DataFrame:
        """Return all rows, in the order in which they came."""
        if self._messages:
            self._convert()
        if len(self._frames) > 1:
            self._frames = [pl.concat(self._frames)]
        return self._frames[0]

    def _convert(self) -> None:
        sequences = pl.Series(self._sequences, dtype=pl.Int64)
        self._frames.append(self._table.frame(self._messages).with_columns(sequence=sequences))
        self._messages, self._sequences = [], []
