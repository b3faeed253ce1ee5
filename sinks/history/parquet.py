"""Rows as the content of files: one file for each hour of a table, written fast, to be merged later."""

import io
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from sinks.history import layout
from sinks.history.continuity import hour as hours
from sinks.history.layout import HOUR_US, Name
from sinks.history.table import Table


def by_hour(
    directory: Path, table: Table, rows: pl.DataFrame, name: Name, most_hours: int = hours.MOST
) -> Iterator[tuple[Path, bytes]]:
    """Yield path and content of each file that rows of a table make.

    Args:
        directory: Folder of the history.
        table: Their table.
        rows: They have its columns.
        name: Name of the files.
        most_hours: Hours that have files of their own; 0: any number.
    """
    for key, own in rows.group_by(hours.of_rows(rows["at_us"], most_hours), maintain_order=True):
        buffer = io.BytesIO()
        own.select(list(table.columns)).write_parquet(buffer, compression="zstd")
        hour = key[0]
        assert isinstance(hour, int)  # at_us is an integer that is never missing
        yield layout.hour_folder(directory, table.name, hour * HOUR_US) / str(name), buffer.getvalue()
