"""Limits of a connection for statements by others: it reads the folder of the history, and nothing else.

DuckDB's `allowed_directories` permits writing, too, so statements that write files are refused by their type.
"""

import re
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import cast

import duckdb

from sinks.history import layout

_OFF = (
    "autoinstall_known_extensions",
    "autoload_known_extensions",
    "allow_community_extensions",
    "allow_persistent_secrets",
)
# They concern this process only.
_FREE_SETTINGS = ("memory_limit", "threads", "TimeZone")
# `COPY` inside of these has no type of its own.
_NESTING = frozenset({duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI})
_READING = _NESTING | {
    duckdb.StatementType.SELECT,
    duckdb.StatementType.CALL,
    duckdb.StatementType.PRAGMA,
    duckdb.StatementType.SET,
    duckdb.StatementType.TRANSACTION,
    # Tables and views in memory, which end with the process.
    duckdb.StatementType.CREATE,
    duckdb.StatementType.DROP,
    duckdb.StatementType.ALTER,
    duckdb.StatementType.INSERT,
    duckdb.StatementType.UPDATE,
    duckdb.StatementType.DELETE,
    duckdb.StatementType.MERGE_INTO,
}
# They answer with rows; a PIVOT is several statements.
_ANSWERED = _NESTING | {duckdb.StatementType.SELECT, duckdb.StatementType.CALL, duckdb.StatementType.PRAGMA}
# The statement names their columns; of another type, a column `Success` alone is DuckDB's word for no rows.
_NAMING = frozenset(
    {
        duckdb.StatementType.SELECT,
        duckdb.StatementType.MULTI,
        duckdb.StatementType.EXECUTE,
        duckdb.StatementType.INSERT,
        duckdb.StatementType.UPDATE,
        duckdb.StatementType.DELETE,
        duckdb.StatementType.MERGE_INTO,
    }
)
_VIEWS = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal AND NOT temporary"
_COPY = re.compile(r"\bcopy\b", re.IGNORECASE)


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Switch extensions and stored secrets off. This comes before the connection's first query."""
    for setting in _OFF:
        connection.execute(f"SET {setting} = false")
    connection.execute(f"SET temp_directory = {layout.quoted(_spill(connection))}")


def _spill(connection: duckdb.DuckDBPyConnection) -> str:
    """Return a folder for what a query does not hold in memory, which ends with the connection; empty: there is none.

    DuckDB would let every user read it.
    """
    try:
        folder = tempfile.mkdtemp(prefix="spazio-sql-")
    except OSError:  # a full disk; most queries need no folder
        return ""
    weakref.finalize(connection, shutil.rmtree, folder, ignore_errors=True)
    return folder


def confine(connection: duckdb.DuckDBPyConnection, directory: Path, writable: Path | None = None) -> None:
    """Leave only the folder to the connection, for good, and one file outside that it may write."""
    # DuckDB compares patterns as they are written, and the files that match them as they are named.
    prefixes = {str(directory), layout.literal(directory)}
    allowed = ", ".join(layout.quoted(f"{prefix}/") for prefix in sorted(prefixes))
    free = ", ".join(map(layout.quoted, _FREE_SETTINGS))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    if writable is not None:
        connection.execute(f"SET allowed_paths = [{layout.quoted(str(writable))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute(f"SET allowed_configs = [{free}]")
    connection.execute("SET lock_configuration = true")


def check(statement: duckdb.Statement) -> None:
    """Let a statement pass that writes no file.

    Raises:
        duckdb.PermissionException: It may write one.
    """
    nested_copy = statement.type in _NESTING and _COPY.search(statement.query)
    if statement.type not in _READING or nested_copy:
        name = "COPY" if nested_copy else statement.type.name
        raise duckdb.PermissionException(f"Permission Error: {name} may write files or load code")


def keep_history(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> None:
    """Refuse to drop or alter a view of the history: that would be reported as done, and only hide it here.

    Raises:
        duckdb.PermissionException: The statement names such a view.
    """
    if statement.type not in (duckdb.StatementType.DROP, duckdb.StatementType.ALTER):
        return
    views = {str(name).casefold() for (name,) in connection.execute(_VIEWS).fetchall()}
    if named := sorted(views.intersection(re.findall(r"\w+", statement.query.casefold()))):
        raise duckdb.PermissionException(f"Permission Error: {named[0]} is of the history, which statements only read")


def check_answer(statement: duckdb.Statement) -> None:
    """Refuse a statement without rows, where each statement has a database of its own that ends with it.

    Raises:
        duckdb.PermissionException: It would be reported as done, and change nothing for the next one.
    """
    if statement.type not in _ANSWERED:
        name = statement.type.name
        raise duckdb.PermissionException(
            f"Permission Error: {name} gives no rows, and statements only read the history"
        )


def rows(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement) -> duckdb.DuckDBPyRelation | None:
    """Execute a statement, or let its rows be computed when they are read; None: it has no rows.

    Raises:
        duckdb.Error: It fails.
    """
    # Some statements without rows give None, which the annotation of the library leaves out.
    relation = cast("duckdb.DuckDBPyRelation | None", connection.sql(statement.query))
    if relation is None or (relation.columns == ["Success"] and statement.type not in _NAMING):
        return None
    return relation
