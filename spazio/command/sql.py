"""`spazio sql`: DuckDB over the history, one statement or a prompt, while the pipeline runs."""

import contextlib
import io
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple

import duckdb

from sinks.history import interruption, sandbox, view
from spazio import INTERRUPTED, count, plain
from spazio.export import fault, file
from spazio.terminal import clean

_HELP = """\
  Statements end with ; and may go over several lines.
  .tables   tables and their columns
  .help     this text
  quit      exit, as Ctrl-D"""
_LEAVING = ("quit", "exit", ".quit", ".exit", ".q")
_COMMANDS = (".tables", ".help")
_NO_COMMAND = "there is no {}; .help lists the commands"

Form = Literal["table", "csv", "json", "parquet"]
Account = Literal["placements", "promises", "savings"]
# Executes a statement once, and returns the text of its rows in pieces that are to be printed.
_Output = Callable[[duckdb.DuckDBPyConnection, duckdb.DuckDBPyRelation], Iterable[str]]
_TABLES = (
    "SELECT table_name AS \"table\", string_agg(column_name, ', ' ORDER BY column_index) AS columns "
    "FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY 1 ORDER BY 1"
)
_LEDGERS = {  # views, their order, and what fills them
    "placements": (
        "ledger",
        "week, namespace",
        "no pod that was decided on in shadow mode and bound since: run the extender with --extender-mode shadow "
        "beside the scheduler, and spazio watch",
    ),
    "promises": (
        "promises",
        "week, namespace",
        "no pod whose node was watched for a minute after its start: run the extender and spazio watch",
    ),
    "savings": (
        "savings",
        "week",
        "no account of what room and requests leave: run the extender and spazio watch for a minute",
    ),
}
_SHOWN_ROWS = 200
_ALL = 1_000_000_000
_FETCHED_ROWS = 10_000  # at once


class _Access(NamedTuple):
    """The folder of the history, and whether statements may do anything."""

    directory: Path
    unrestricted: bool


def run(directory: Path, statement: str | None, *, form: Form = "table", unrestricted: bool = False) -> int:
    """Execute a statement, or read statements; return the exit status, 130 after Ctrl-C.

    Args:
        directory: Folder of the history.
        statement: SQL; None: read from the terminal, or from standard input if it is no terminal.
        form: How rows are printed: as a table, CSV with a heading, a JSON array, or the bytes of a Parquet file.
        unrestricted: Let statements read and write any file, and load extensions.
    """
    access = _Access(directory, unrestricted)
    try:
        if form == "parquet":
            return _run_parquet(statement, access)
        if form != "table" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="strict")  # in rows for programs nothing is replaced
        with view.connect(directory, restricted=not unrestricted) as connection:
            return _run_text(connection, statement, {"json": _json, "csv": _csv, "table": _table}[form], access)
    except (FileNotFoundError, duckdb.Error) as error:
        clean.complain(fault.reason(error, directory))
        return 1
    except KeyboardInterrupt:
        clean.complain("interrupted")
        return INTERRUPTED


def _run_text(connection: duckdb.DuckDBPyConnection, statement: str | None, output: _Output, access: _Access) -> int:
    if statement is not None:
        return 0 if _execute(connection, statement, output, access) else 1
    if sys.stdin.isatty():
        return _prompt(connection, output, access)
    return 0 if _execute_piped(connection, sys.stdin.read(), output, access) else 1


def _execute_piped(connection: duckdb.DuckDBPyConnection, text: str, output: _Output, access: _Access) -> bool:
    """Execute what standard input holds, as the prompt does: commands on lines of their own, between statements."""
    for part in _parts(text):
        if not part.startswith("."):
            done = _execute(connection, part, output, access)
        elif done := part in _COMMANDS:
            _command(part, connection, output, access)
        else:
            clean.complain(_NO_COMMAND.format(part))
        if not done:
            return False
    return True


def _parts(text: str) -> Iterator[str]:
    """Split into statements and commands, up to the line that leaves."""
    lines: list[str] = []
    for line in text.splitlines():
        between = not lines or lines[-1].rstrip().endswith(";")
        if between and line.strip().rstrip(";").lower() in _LEAVING:
            break
        if between and line.strip().startswith("."):
            yield "\n".join(lines)
            yield line.strip()
            lines = []
        elif line.strip() or not between:
            lines.append(line)
    yield "\n".join(lines)


def _command(name: str, connection: duckdb.DuckDBPyConnection, output: _Output, access: _Access) -> None:
    if name == ".help":
        print(_HELP)
    else:
        _execute(connection, _TABLES, output, access)


def ledger(directory: Path, account: Account = "placements", *, form: Form = "table") -> int:
    """Print an account of the extender by week; return the exit status, 1 if there is none."""
    name, order, absent = _LEDGERS[account]
    try:
        with view.connect(directory) as connection:
            kept = connection.execute("SELECT 1 FROM duckdb_views() WHERE view_name = ?", [name]).fetchone()
            rows = kept and connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()  # noqa: S608 # one of ours
    except (FileNotFoundError, duckdb.Error) as error:
        clean.complain(fault.reason(error, directory))
        return 1
    if not rows:
        clean.complain(f"{directory} has {absent}")
        return 1
    return run(directory, f"FROM {name} ORDER BY {order}", form=form)


def _run_parquet(statement: str | None, access: _Access) -> int:
    """Write the rows of one statement to standard output, which is no terminal."""
    if sys.stdout.isatty() or (statement is None and sys.stdin.isatty()):
        clean.complain('Parquet is no text: spazio sql --format parquet "SELECT …" > rows.parquet, or spazio export')
        return 2
    text = "\n".join(_parts(sys.stdin.read())) if statement is None else statement
    with tempfile.TemporaryDirectory(prefix="spazio-sql-") as folder:
        path, written = Path(folder, "rows.parquet"), list[int]()

        def keep(_: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation) -> Iterable[str]:
            if written:
                raise duckdb.InvalidInputException("a Parquet file holds the rows of one statement, not of several")
            path.unlink(missing_ok=True)
            written.append(file.write(rows, path, "parquet"))
            return ()

        with view.connect(access.directory, restricted=not access.unrestricted, writable=path) as connection:
            if not _execute(connection, text, keep, access):
                return 1
        if not written:
            clean.complain("the statement has no rows")
            return 1
        with path.open("rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
    return 0


def _execute(connection: duckdb.DuckDBPyConnection, text: str, output: _Output, access: _Access) -> bool:
    try:
        statements = connection.extract_statements(text)
        for number, statement in enumerate(statements, 1):
            if not access.unrestricted:
                sandbox.check(statement)
                sandbox.keep_history(connection, statement)
            with interruption.interruptible(connection):
                lines = view.retried(partial(_answer, connection, statement, output))
            if not _print(lines):  # DuckDB takes no statement before all rows are read
                if left := len(statements) - number:
                    clean.complain(
                        f"the rows have lost their reader; {count.of(left, 'statement')} behind were not executed"
                    )
                return not left
    except duckdb.PermissionException as error:
        clean.complain(f"{error}\nStatements only read the history; --unrestricted lets them do anything")
        return False
    except (duckdb.Error, OverflowError) as error:  # an interval may be longer than Python's
        clean.complain(fault.reason(error, access.directory))
        return False
    return True


def _print(lines: Iterable[str]) -> bool:
    """Print; False: the reader has left, and has what it wants."""
    try:
        sys.stdout.writelines(lines)
    except BrokenPipeError:
        clean.leave()
        return False
    return True


def _answer(connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, output: _Output) -> Iterable[str]:
    rows = sandbox.rows(connection, statement)
    return () if rows is None else output(connection, rows)


def _table(_: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation) -> Iterable[str]:
    terminal = sys.stdout.isatty()
    with contextlib.redirect_stdout(io.StringIO()) as table:
        rows.show(max_rows=_SHOWN_ROWS if terminal else _ALL, max_width=None if terminal else 10_000)
    return [clean.lines(table.getvalue())]


def _csv(connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation) -> Iterable[str]:
    """Return a heading and rows; what is missing is empty, and lists and maps are JSON. Terminals get escapes."""
    shown: Callable[[str], str] = clean.text if sys.stdout.isatty() else str
    return plain.csv_lines(itertools.chain([rows.columns], _fetched(connection, rows)), shown)


def _json(connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation) -> Iterable[str]:
    names, fetched = plain.distinct(rows.columns), _fetched(connection, rows)
    objects = (json.dumps(dict(zip(names, map(plain.value, row), strict=True))) for row in fetched)
    separated = itertools.chain.from_iterable(zip(itertools.chain([""], itertools.repeat(", ")), objects, strict=False))
    return itertools.chain(["["], separated, ["]\n"])


def _fetched(connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation) -> Iterator[Sequence[Any]]:
    """Execute a statement, and return an iterator that makes objects of its rows in pieces, so that Ctrl-C ends it."""
    held = rows.materialize()
    return _in_pieces(held, connection.execute(held.sql_query()))


def _in_pieces(_: duckdb.DuckDBPyRelation, cursor: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    """Yield rows; the relation holds them."""
    while piece := cursor.fetchmany(_FETCHED_ROWS):
        yield from piece


def _prompt(connection: duckdb.DuckDBPyConnection, output: _Output, access: _Access) -> int:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 # adds a history and line editing to `input`

    print("DuckDB over spazio's history. .tables lists tables, .help shows more, Ctrl-D exits.")
    for statement in _statements():
        if statement in _COMMANDS:
            _command(statement, connection, output, access)
        elif statement.startswith("."):
            print(_NO_COMMAND.format(statement))
        else:
            began = monotonic()
            try:
                _execute(connection, statement, output, access)
            except KeyboardInterrupt:
                print("\ninterrupted; the prompt goes on, and Ctrl-D exits")
            print(f"{monotonic() - began:.3f} s")
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
        if not lines and line.strip().rstrip(";").lower() in _LEAVING:
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
