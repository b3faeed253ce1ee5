"""Writes tables of the history, or the answer to a query, into files, each complete or absent."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from sinks.history import interruption, sandbox, view
from sinks.period import Period
from spazio.export import file, selection
from spazio.export.file import Form
from spazio.export.selection import Unselectable


class Exported(NamedTuple):
    """What was exported.

    Attributes:
        within: Range.
        written: Number of rows by file.
        missing: Sentences on nodes, or on the range, that have no rows.
    """

    within: Period
    written: dict[Path, int]
    missing: list[str]


def write(
    directory: Path,
    folder: Path,
    form: Form,
    names: Sequence[str],
    nodes: Sequence[str],
    since: str | None,
    until: str | None,
) -> Exported:
    """Write one file a table into a folder.

    Args:
        directory: Folder of the history.
        folder: Folder for the files; it is made. Files of the same names are replaced.
        form: Format.
        names: Tables and views; none: all tables that have rows in the range.
        nodes: Nodes; none: all.
        since: Begin, see `selection.parse`.
        until: End.

    Raises:
        Unselectable: A table does not exist, or a text is no time.
        FileNotFoundError: There is no history.
        OSError, duckdb.Error: A file cannot be written.
    """
    with view.connect(directory) as connection, interruption.interruptible(connection):
        chosen = selection.tables(connection, names, nodes)
        newest_us = selection.newest(directory, connection)
        within = selection.parse(since, until, newest_us)
        folder.mkdir(parents=True, exist_ok=True)
        written = {}
        for table, condition in chosen.items():
            path = folder / f"{table}.{form}"
            rows = _settled(connection, selection.statement(table, within, condition), path, form, empty=bool(names))
            if rows or names:
                written[path] = rows
        missing = selection.missing(connection, chosen, nodes, within)
    if not (missing or any(written.values())):
        missing.append(
            f"there are no rows {selection.spoken(within)}; the newest row is of {selection.text(newest_us)}"
        )
    return Exported(within, written, missing)


def write_query(directory: Path, path: Path, form: Form, query: str) -> int:
    """Write the answer to a statement that only reads the history, and return the number of rows.

    Raises:
        Unselectable: It is not one statement with rows.
        FileNotFoundError: There is no history.
        OSError, duckdb.Error: The statement fails or may write, or the file cannot be written.
    """
    opened = view.connect(directory, restricted=True, writable=file.hidden(path))
    with opened as connection, interruption.interruptible(connection):
        path.parent.mkdir(parents=True, exist_ok=True)
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            raise Unselectable(f"one statement is exported at a time; this text has {len(statements)}")
        sandbox.check(statements[0])
        return _settled(connection, statements[0].query, path, form)


def _settled(connection: duckdb.DuckDBPyConnection, query: str, path: Path, form: Form, *, empty: bool = True) -> int:
    """Write rows beside the path and rename the file once it is complete; `empty`: also if there are none."""
    with file.replacing(path) as hidden:
        count = view.retried(lambda: _written(connection, query, hidden, form))
        if not (count or empty):
            hidden.unlink()
            path.unlink(missing_ok=True)  # of an export before, of other rows
    return count


def _written(connection: duckdb.DuckDBPyConnection, query: str, hidden: Path, form: Form) -> int:
    hidden.unlink(missing_ok=True)  # of an attempt before
    (statement,) = connection.extract_statements(query)
    rows = sandbox.rows(connection, statement)
    if rows is None:
        raise Unselectable("the statement has no rows")
    return file.write(rows, hidden, form)
