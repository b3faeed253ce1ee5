"""DuckDB views over the files.

`history.duckdb` has only views. After its creation nothing opens it for writing, so any number of processes can read it
at any time. A restricted connection copies them from there, since to create them takes DuckDB ten times as long; what
somebody else may have written there can harm no other.
"""

import hashlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import duckdb
import polars as pl

from sinks.history import interruption, layout, sandbox
from sinks.history.column import Schema
from sinks.history.table import TABLES, Table
from sinks.history.tables import capacity, merged
from sinks.history.tables.rolled import CLUSTER, MINUTES, ROLLED, Rolled
from sinks.history.views import listing, node, operations, present, samples

Value = TypeVar("Value")

FILE = "history.duckdb"
_ATTEMPTS = 5
_GONE = "No such file"
_TABLES: tuple[Table | Rolled, ...] = (*TABLES, *ROLLED)
_COLUMNS = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"
_TIME_OF_FOLDER = ", make_timestamp(at_us)::DATE AS date, hour(make_timestamp(at_us))::INTEGER AS hour"
_MARK = "SELECT comment FROM duckdb_views() WHERE database_name = 'stored' AND view_name = 'recent_hours'"


def create(directory: Path) -> Path:
    """Create or replace `history.duckdb`, with absolute paths, and return its path.

    Raises:
        OSError: The folder is not writable, or the disk is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for table in _TABLES:
        _stand_in(layout.stand_in(directory, table.name), _columns_of(table))
    path = directory / FILE
    hidden = directory / f".{FILE}.new"
    hidden.unlink(missing_ok=True)
    try:
        with duckdb.connect(hidden) as connection:
            _views(connection, directory.absolute())
            connection.execute(f"COMMENT ON VIEW recent_hours IS '{_digest(directory.absolute())}'")
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
        if not (restricted and _copied(connection, directory)):
            _views(connection, directory)
        if restricted:
            sandbox.confine(connection, directory, writable)
    return connection


def _columns_of(table: Table | Rolled) -> Schema:
    """Return the columns that files of a table may have."""
    return {**table.columns, **(merged.COLUMNS if table.name == merged.TABLE else {})}


def _stand_in(path: Path, columns: Schema) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = layout.hidden(path)
    content = io.BytesIO()
    pl.DataFrame(schema=columns).write_parquet(content)
    hidden.write_bytes(content.getvalue())  # unlike polars, it raises an OSError on a full disk
    hidden.replace(path)


def _copied(connection: duckdb.DuckDBPyConnection, directory: Path) -> bool:
    """Copy the views of the folder's file if they are those that `create` would make; return whether they are."""
    path = directory / FILE
    # Views rest on the columns of the files without rows.
    if not all(file.is_file() for file in (path, *(layout.stand_in(directory, table.name) for table in _TABLES))):
        return False
    try:
        connection.execute(f"ATTACH {layout.quoted(str(path))} AS stored (READ_ONLY)")
    except duckdb.Error:  # of another version of DuckDB, or damaged
        return False
    current = connection.execute(_MARK).fetchone() == (_digest(directory),)
    if current:
        connection.execute("COPY FROM DATABASE stored TO memory (SCHEMA)")
    connection.execute("DETACH stored")
    return current


def _digest(directory: Path) -> str:
    """Return a digest of what `create` makes, which is another one in another folder and for other views."""
    columns = {table.name: _columns_of(table) for table in _TABLES}
    statements = [_of_files(directory, name, sorted(names)) for name, names in columns.items()]
    return hashlib.sha256("\n".join([*statements, *_of_tables(directory, columns)]).encode()).hexdigest()


def _views(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    for table in _TABLES:
        if (directory / table.name).is_dir():
            described = f"DESCRIBE FROM {_files(directory, table.name)}"
            rows = connection.execute(described).fetchall() if table.name == merged.TABLE else []
            connection.execute(_of_files(directory, table.name, [str(name) for name, *_ in rows]))
    columns: dict[str, set[str]] = {}
    for table_name, column in connection.execute(_COLUMNS).fetchall():
        columns.setdefault(str(table_name), set()).add(str(column))
    for statement in _of_tables(directory, columns):
        connection.execute(statement)


def _of_tables(directory: Path, columns: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield the statements that create views of tables with these columns.

    Files of older versions lack columns; they appear once a history sink has started in the folder.
    """
    availability = set(columns.get("availability", ()))
    if availability >= capacity.COLUMNS:
        yield capacity.CLASSES
        yield capacity.clusters(directory, CLUSTER.name if CLUSTER.name in columns else "")
    if availability >= node.COLUMNS:
        rolled = MINUTES.name in columns
        yield node.now(directory, rolled=rolled)
        yield node.minutes(directory, rolled=rolled)
        if availability >= capacity.COLUMNS:
            yield node.classes(directory, rolled=rolled)
    yield listing.recent(directory)
    if measured := columns.keys() & set(present.TABLES):
        yield present.statement(directory, measured)
    if columns.keys() >= set(samples.TABLES) and samples.COLUMNS.issubset(columns["samples"]):
        yield samples.statement(directory)
    for wanted in operations.VIEWS:
        if wanted.columns.issubset(columns.get(wanted.table, ())):
            yield wanted.statement


def _files(directory: Path, table: str) -> str:
    """Return a table's files as one that a query selects from."""
    # A `name=value` folder above the tables would become a column, too, and hide a column of that name.
    hive = _partitioned(directory)
    types = ", hive_types = {'date': DATE, 'hour': INTEGER}" if hive else ""
    return f"read_parquet({listing.pattern(directory, table)}, hive_partitioning = {hive}{types}, union_by_name = true)"


def _partitioned(directory: Path) -> bool:
    return "=" not in str(directory)


def _of_files(directory: Path, table: str, columns: Collection[str]) -> str:
    """Return the statement that creates the view of a table's files; only of merged ones the columns matter."""
    selected = merged.public(columns) if table == merged.TABLE else "*"
    hour = "" if _partitioned(directory) else _TIME_OF_FOLDER
    return (
        f"CREATE VIEW {table} AS "  # noqa: S608 # names of our own, and a quoted path
        f"SELECT to_timestamp(at_us / 1000000.0) AS time, {selected}{hour} FROM {_files(directory, table)}"
    )
