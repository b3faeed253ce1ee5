"""DuckDB views over the files.

`history.duckdb` holds views and nothing else. It is never open for writing once it is in place, so any number of
processes may read it at any time.
"""

from pathlib import Path

import duckdb
import polars as pl

from sinks.history import layout
from sinks.history.table import TABLES, Table
from sinks.history.tables import capacity

FILE = "history.duckdb"
# In the oldest hour there is: a query by time passes over it, and a table without rows has its columns.
_EMPTY = "date=1970-01-01/hour=00/empty.parquet"

_COLUMNS = "SELECT column_name FROM duckdb_columns() WHERE table_name = 'availability'"


def create(directory: Path) -> Path:
    """Make `history.duckdb` anew, with absolute paths, and return where it is.

    Raises:
        OSError: The folder cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        _stand_in(directory, table)
    path = directory / FILE
    hidden = directory / f".{FILE}.new"
    hidden.unlink(missing_ok=True)
    try:
        with duckdb.connect(hidden) as connection:
            _views(connection, directory.absolute())
    except duckdb.Error as error:
        raise OSError(str(error)) from error
    hidden.chmod(0o444)  # nobody needs to write to it, and a writer would lock readers out
    hidden.replace(path)
    layout.sync(directory)
    return path


def connect(directory: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection in memory with the same views over wherever the folder is now.

    Raises:
        FileNotFoundError: There is no history.
    """
    if not any((directory / table.name).is_dir() for table in TABLES):
        raise FileNotFoundError(f"{directory} holds no history; run `spazio up`, or name a folder with --history-dir")
    connection = duckdb.connect()
    _views(connection, directory.absolute())
    return connection


def _stand_in(directory: Path, table: Table) -> None:
    path = directory / table.name / _EMPTY
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    pl.DataFrame(schema=table.columns).write_parquet(hidden)
    hidden.replace(path)


def _views(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
    for table in TABLES:
        if not (directory / table.name).is_dir():
            continue
        # Any `name=value` above the tables would pass for a column too, and hide one of that name.
        hive = "=" not in str(directory)
        hour = "" if hive else ", make_timestamp(at_us)::DATE AS date, hour(make_timestamp(at_us))::INTEGER AS hour"
        types = ", hive_types = {'date': DATE, 'hour': INTEGER}" if hive else ""
        pattern = _quoted(f"{_literal(str(directory))}/{table.name}/*/*/*.parquet")
        connection.execute(
            f"CREATE VIEW {table.name} AS "  # noqa: S608 # names of our own, and a quoted path
            f"SELECT to_timestamp(at_us / 1000000.0) AS time, *{hour} FROM read_parquet({pattern}, "
            f"hive_partitioning = {hive}{types}, union_by_name = true)"
        )

    # An older writer's files have no classes yet; they get the columns when a history sink starts in the folder.
    columns = {str(row[0]) for row in connection.execute(_COLUMNS).fetchall()}
    if columns >= capacity.COLUMNS:
        for statement in capacity.VIEWS:
            connection.execute(statement)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(path: str) -> str:
    """Return a path in which nothing is a wildcard."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)
