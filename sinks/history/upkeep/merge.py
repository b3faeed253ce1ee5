"""Merging: the files of a folder become one, sorted by node and time.

That of an hour that has ended has the encodings that suit the table. One of an hour that still fills is merged again,
so it is written as its rows are: to find their digits and to encode them takes a quarter of the time of a merge.

The merged file is written beside the small ones under a name whose range contains theirs; then the caller removes the
small ones. A crash in between leaves both, so files whose range lies within another file's are removed first.
For some milliseconds, a query may count rows twice or miss a file that it has listed; a second try is correct.
"""

import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from sinks.history import layout
from sinks.history.layout import Name
from sinks.history.tables import merged
from sinks.history.upkeep import damage, decimal, ordering

log = logging.getLogger(__name__)

_MEMORY = "512MB"
# Encodings of version 2: delta for integers, byte streams for other numbers.
_COLUMNS = "COMPRESSION zstd, COMPRESSION_LEVEL 9, PARQUET_VERSION v2, ROW_GROUP_SIZE 122880"
# Of tables whose numbers move with every row: a number's place in a dictionary takes more bits than its difference to
# the one before. A row group has the texts of few nodes, which keep a dictionary.
_MOVING = frozenset({"samples", "smoothed", merged.TABLE})
_DELTAS = ", DICTIONARY_SIZE_LIMIT 256"


def merge(folder: Path, files: Sequence[tuple[Path, Name]], *, final: bool = True) -> Path | None:
    """Merge files of one stream and return the result; damaged files are set aside. None: less than two are readable.

    Args:
        folder: Folder of an hour.
        files: Its files to merge.
        final: The result stays, so it is encoded well; else it is merged again, and is written fast.

    Raises:
        OSError: They could not be merged, as on a full disk; they are still there.
    """
    try:
        return _merge(folder, files, final=final)
    except OSError:
        readable = [(path, name) for path, name in files if not damage.set_aside(path)]
        if len(readable) == len(files):
            raise
        return _merge(folder, readable, final=final) if len(readable) > 1 else None


def _merge(folder: Path, files: Sequence[tuple[Path, Name]], *, final: bool) -> Path:
    whole = Name(files[0][1].created, min(name.first for _, name in files), max(name.last for _, name in files))
    path = folder / str(whole)
    with connected(folder) as connection:
        paths = [layout.literal(path) for path, _ in files]
        rows = connection.read_parquet(paths, union_by_name=True, hive_partitioning=False)
        table = folder.parents[1].name
        with ordering.ordered(connection, rows, path) as order:
            if final:
                relation = _stored(connection, rows.columns) if table == merged.TABLE else "files"
                store(connection, relation, path, order, _DELTAS if table in _MOVING else "")
            else:
                form = f"{ordering.FAST}, KV_METADATA {{{damage.EARLY}: 'true'}}"
                _copy(connection, f"SELECT * FROM files {order}", path, form)  # noqa: S608 # no input
    log.info("history.compacted", extra={"folder": str(folder), "files": len(files)})
    return path


def _stored(connection: duckdb.DuckDBPyConnection, columns: Collection[str]) -> str:
    """Return a view of availability as a merged file has it.

    Args:
        connection: It has the rows as the view `files`.
        columns: Columns of that view.
    """
    most = merged.places(columns)
    if "classes" in columns:
        (listed,) = connection.execute("SELECT coalesce(max(len(classes)), 0) FROM files").fetchall()[0]
        most = max(most, listed)
    public, stored = merged.public(columns), merged.stored(columns, most)
    connection.execute(f"CREATE VIEW public_rows AS SELECT {public} FROM files")  # noqa: S608 # names of our own
    connection.execute(f"CREATE VIEW stored_rows AS SELECT {stored} FROM public_rows")  # noqa: S608 # the same
    return "stored_rows"


@contextmanager
def connected(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to DuckDB with bounded memory, which spills into a folder, for the duration of a `with` block.

    Raises:
        OSError: Something in the block failed.
    """
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "temp_directory": str(folder / layout.SPILL),
    }
    try:
        with duckdb.connect(config=limits) as connection:
            yield connection
    except (duckdb.Error, OSError) as error:
        raise OSError(f"{folder}: {error}") from error


def store(
    connection: duckdb.DuckDBPyConnection, relation: str, path: Path, order: str = "", encoding: str = ""
) -> None:
    """Write the rows of a table or view to a file: complete and durable, or absent.

    Raises:
        OSError, duckdb.Error: They cannot be written.
    """
    _copy(connection, f"{decimal.query(connection, relation)} {order}", path, f"{_COLUMNS}{encoding}")


def _copy(connection: duckdb.DuckDBPyConnection, rows: str, path: Path, form: str) -> None:
    """Write the result of a query to a file of this form: complete and durable, or absent."""
    hidden = layout.hidden(path)
    try:
        connection.execute(f"COPY ({rows}) TO {layout.quoted(str(hidden))} (FORMAT parquet, {form})")
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
    except (duckdb.Error, OSError):
        hidden.unlink(missing_ok=True)
        raise
    layout.settle(hidden, path)
