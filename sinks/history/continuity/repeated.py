"""Rows that are published again after a server came back, with less than it had, or after the history started again.

The history has rows of messages that the server has lost, and of messages that it remembers no more. Their publishers
may publish them again: a producer that missed the acknowledgement, a processor that folds its input again from an older
checkpoint. They have other sequences then, so they are recognized by their content: all texts and integers of the row
except its sequence.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from prometheus_client import Counter

from sinks.history import layout
from sinks.history.continuity.epoch import REMEMBERED_US, Earlier
from sinks.history.table import TABLES, Table

REPEATED = Counter("spazio_history_repeated_rows_total", "rows left out because they were stored already", ["table"])


class RepublishedRows:
    """Rows that may come again, for some minutes."""

    def __init__(self, directory: Path, earlier: Sequence[Earlier], now_us: int) -> None:
        """Read them from the files.

        Args:
            directory: Folder of the history.
            earlier: Epochs that ended, and what was written last; rows beyond the sequences `kept` may come again.
            now_us: Time in microseconds since the epoch; those that ended long ago are left out.

        Raises:
            OSError: A file cannot be read.
        """
        recent = [each for each in earlier if each.ended_us > now_us - REMEMBERED_US]
        self._until_us = max((each.ended_us + REMEMBERED_US for each in recent), default=0)
        self._keys: dict[str, pl.DataFrame] = {}
        if not recent:
            return
        kept = {each.created: each.kept for each in recent}
        beyond = [
            (path, kept[name.created])
            for path, name in layout.files(directory)
            if name.created in kept and name.last > kept[name.created]
        ]
        for table in TABLES:
            frames = [_keys_of(path, table, last) for path, last in beyond if path.parents[2].name == table.name]
            if frames:
                self._keys[table.name] = pl.concat(frames).unique()

    def without(self, table: Table, frame: pl.DataFrame, now_us: int) -> pl.DataFrame:
        """Return the rows that are new."""
        if now_us > self._until_us:
            self._keys = {}
        keys = self._keys.get(table.name)
        if keys is None:
            return frame
        return frame.join(keys, on=keys.columns, how="anti", nulls_equal=True, maintain_order="left")


def _keys_of(path: Path, table: Table, kept: int) -> pl.DataFrame:
    names = [name for name, kind in table.schema.items() if kind in (pl.String, pl.Int64)]
    try:
        rows = (
            pl.scan_parquet(path, hive_partitioning=False)
            .filter(pl.col("sequence") > kept)
            .select(names)
            .collect(engine="streaming")
        )
    except (pl.exceptions.PolarsError, FileNotFoundError):
        return pl.DataFrame(schema={name: table.schema[name] for name in names})  # damaged, or of another version
    return rows.cast({name: table.schema[name] for name in names})
