"""`spazio sql`: DuckDB over the history, one statement or a prompt, while the pipeline runs."""

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import duckdb

from sinks.history import sandbox, view
from spazio import plain
from spazio.terminal import clean

_HELP = """\
  Statements end with ; and may go over several lines.
  .tables   tables and their columns
  .help     this text
  Ctrl-D    exit"""
_TABLES = (
    "SELECT table_name AS \"table\", string_agg(column_name, ', ' ORDER BY column_index) AS columns "
    "FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY 1 ORDER BY 1"
)
_SHOWN_ROWS = 200
_ALL = 1_000_000_000


def run(directory: Path, statement: str | None, *, json_output: bool, unrestricted: bool = False) -> int:
    """Execute a statement, or read statements; return the exit status.

    Args:
        directory: Folder of the history.
        statement: SQL; None: read from the terminal, or from standard input if it is no terminal.
        json_output: Print rows as a JSON array.
        unrestricted: Let statements read and write any file, and load extensions.
    """
    try:
        connection = view.connect(directory, restricted=not unrestricted)
    except (FileNotFoundError, duckdb.Error) as error:
        clean.complain(error)
        return 1
    with connection:
        if statement is None and sys.stdin.isatty():
            return _prompt(connection, json_output, unrestricted)
        text = sys.stdin.read() if statement is None else statement
        return 0 if _execute(connection, text, json_output, unrestricted) else 1


def _execute(connection: duckdb.DuckDBPyConnection, text: str, json_output: bool, unrestricted: bool) -> bool:
    try:
        for statement in connection.extract_statements(text):
            if not unrestricted:
                sandbox.check(statement)
            try:
                _print(connection, statement.query, json_output)
            except duckdb.IOException:
                # Compaction has just replaced a file that the query had listed.
                _print(connection, statement.query, json_output)
    except duckdb.PermissionException as error:
        clean.complain(f"{error}\nStatements only read the history; --unrestricted lets them do anything")
        return False
    except duckdb.Error as error:
        clean.complain(error)
        return False
    return True


def _print(connection: duckdb.DuckDBPyConnection, query: str, json_output: bool) -> None:
    # A statement without rows gives None, which the annotation of the library leaves out.
    rows = cast("duckdb.DuckDBPyRelation | None", connection.sql(query))
    if rows is None:
        return
    if not json_output:
        terminal = sys.stdout.isatty()
        with contextlib.redirect_stdout(io.StringIO()) as table:
            rows.show(max_rows=_SHOWN_ROWS if terminal else _ALL, max_width=None if terminal else 10_000)
        sys.stdout.write(clean.lines(table.getvalue()))
        return
    names = plain.distinct(rows.columns)
    print(json.dumps([dict(zip(names, map(plain.value, row), strict=True)) for row in rows.fetchall()]))


def _prompt(connection: duckdb.DuckDBPyConnection, json_output: bool, unrestricted: bool) -> int:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 # adds a history and line editing to `input`

    print("DuckDB over spazio's history. .tables lists tables, .help shows more, Ctrl-D exits.")
    for statement in _statements():
        if statement == ".help":
            print(_HELP)
        elif statement == ".tables":
            _execute(connection, _TABLES, json_output, unrestricted)
        elif statement.startswith("."):
            print(f"there is no {statement}; .help lists the commands")
        else:
            _execute(connection, statement, json_output, unrestricted)
    return 0


def _statements() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            line = input("  ... " if lines else "spazio> ")
        except KeyboardInterrupt:
            lines = []
            print()
            continue
        except EOFError:
            print()
            return
        if not lines and line.strip().startswith("."):
            yield line.strip()
            continue
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
        elif not "".join(lines).strip():
            lines = []
