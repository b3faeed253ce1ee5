"""DuckDB views over the files.

`history.duckdb` has only views. After its creation nothing opens it for writing, so any number of processes can read it
at any time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import duckdb
import polars as pl

from sinks.history import interruption, layout, sandbox
from sinks.history.column import Schema
from sinks.history.table import TABLES, Table
from sinks.history.tables import capacity, merged
from sinks.history.tables.rolled import CLUSTER, MINUTES, ROLLED, Rolled
from sinks.history.views import listing, node, operations, samples

Value = TypeVar("Value")

FILE = "history.duckdb"
_ATTEMPTS = 5
_GONE = "No such file"
_TABLES: tuple[Table | Rolled, ...] = (*TABLES, *ROLLED)
_COLUMNS = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"


def create(directory: Path) -> Path:
    """Create or replace `history.duckdb`, with absolute paths, and return its path.

    Raises:
        OSError: The folder is not writable.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for table in _TABLES:
        beside = merged.COLUMNS if table.name == merged.TABLE else {}
        _stand_in(layout.stand_in(directory, table.name), {**table.columns, **beside})
    path = directory / FILE
    hidden = directory / f".{FILE}.new"
    hidden.unlink(missing_ok=True)
    try:
        with duckdb.connect(hidden) as connection:
            _views(connection, directory.absolute())
    except duckdb.Error as error:
        raise OSError(str(error)) from error
    hidden.chmod(0o444)  # a writer would lock readers out
    hidden.replace(path)
    layout.sync(directory)
    return path


def version(directory: Path) -> tuple[int, int] | None:
    """Return what changes whenever `create` has created the views again; None: it never has."""
    try:
        status = (directory / FILE).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def connect(directory: Path, *, restricted: bool = False, writable: Path | None = None) -> duckdb.DuckDBPyConnection:
    """Return an in-memory connection with the same views over the folder's current path.

    Args:
        directory: Folder of the history.
        restricted: Let the connection see no other file, load no extension and keep its settings; `sandbox.check` has
            to see each statement.
        writable: File that a restricted connection may write, too, for the answer to a statement.

    Raises:
        FileNotFoundError: The folder has no history.
    """
    if not any((directory / table.name).is_dir() for table in TABLES):
        raise FileNotFoundError(f"{directory} holds no history; run `spazio up`, or name a folder with --history-dir")
    return retried(lambda: _connected(directory.absolute(), restricted, writable))


def retried(query: Callable[[], Value]) -> Value:
    """Return what a query gives; run it again where a file that it has listed is gone before it is opened.

    Compaction replaces files, and a history sink that starts removes those that were never committed.

    Raises:
        duckdb.IOException: A file cannot be used for another reason, or files go again and again.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return query()
        except duckdb.IOException as error:
            if _GONE not in str(error):
                raise
    return query()


def _connected(directory: Path, restricted: bool, writable: Path | None) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    with interruption.interruptible(connection):
        if restricted:
            sandbox.prepare(connection)
        _views(connection, directory)
        if restricted:
            sandbox.confine(connection, directory, writable)
    return connection


def _stand_in(path: Path, columns: Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = layout.hidden(path)
    pl.DataFrame(schema=columns).write_parquet(hidden)
    hidden.replace(path)


def _views(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    for table in _TABLES:
        if (directory / table.name).is_dir():
            _of_files(connection, directory, table.name)

    # Files of older versions lack columns; they appear once a history sink has started in the folder.
    columns: dict[str, set[str]] = {}
    for table_name, column in connection.execute(_COLUMNS).fetchall():
        columns.setdefault(str(table_name), set()).add(str(column))
    if columns.get("availability", set()) >= capacity.COLUMNS:
        connection.execute(capacity.CLASSES)
        connection.execute(capacity.clusters(directory, CLUSTER.name if CLUSTER.name in columns else ""))
    if columns.get("availability", set()) >= node.COLUMNS:
        rolled = MINUTES.name in columns
        connection.execute(node.now(directory, rolled=rolled))
        connection.execute(node.minutes(directory, rolled=rolled))
        if columns["availability"] >= capacity.COLUMNS:
            connection.execute(node.classes(directory, rolled=rolled))
    connection.execute(listing.recent(directory))
    if columns.keys() >= set(samples.TABLES) and columns["samples"] >= samples.COLUMNS:
        connection.execute(samples.statement(directory))
    for wanted in operations.VIEWS:
        if columns.get(wanted.table, set()) >= wanted.columns:
            connection.execute(wanted.statement)


def _of_files(connection: duckdb.DuckDBPyConnection, directory: Path, table: str) -> None:
    """Create the view of a table's files."""
    # A `name=value` folder above the tables would become a column, too, and hide a column of that name.
    hive = "=" not in str(directory)
    hour = "" if hive else ", make_timestamp(at_us)::DATE AS date, hour(make_timestamp(at_us))::INTEGER AS hour"
    types = ", hive_types = {'date': DATE, 'hour': INTEGER}" if hive else ""
    files = (
        f"read_parquet({listing.pattern(directory, table)}, hive_partitioning = {hive}{types}, union_by_name = true)"
    )
    selected = "*"
    if table == merged.TABLE:
        columns = [str(name) for name, *_ in connection.execute(f"DESCRIBE FROM {files}").fetchall()]
        selected = merged.public(columns)
    connection.execute(
        f"CREATE VIEW {table} AS "  # noqa: S608 # names of our own, and a quoted path
        f"SELECT to_timestamp(at_us / 1000000.0) AS time, {selected}{hour} FROM {files}"
    )
