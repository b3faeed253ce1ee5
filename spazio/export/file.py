"""Rows of DuckDB as a file: Parquet, CSV with a heading, or JSON with one object a line.

DuckDB writes the file itself, so rows beyond the memory pass through. CSV has no lists, so lists, maps and structs are
JSON text there. JSON has no numbers that are not finite, so those are null in it.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import duckdb

from sinks.history import layout

Form = Literal["parquet", "csv", "json"]
FORMS: tuple[Form, ...] = get_args(Form)
_OPTIONS: dict[Form, str] = {
    "parquet": "FORMAT parquet, COMPRESSION zstd",
    "csv": "FORMAT csv, HEADER",
    "json": "FORMAT json",
}
_NESTED = frozenset({"list", "array", "struct", "map", "union"})
_ERRNO = re.compile(r'"errno":"(\d+)"')
_FLOATING = frozenset({"float", "double"})


def write(rows: duckdb.DuckDBPyRelation, path: Path, form: Form) -> int:
    """Write rows into a new file and return their number.

    Args:
        rows: Rows of a connection that may write the path.
        path: File that does not exist.
        form: Format of the file.

    Raises:
        OSError: The file cannot be written.
        duckdb.Error: The rows cannot be computed.
    """
    columns = [(name, kind.id) for name, kind in zip(rows.columns, rows.types, strict=True)]
    replaced = {
        "csv": [(name, f"to_json({_name(name)})") for name, kind in columns if kind in _NESTED],
        "json": [
            (name, f"CASE WHEN isfinite({_name(name)}) THEN {_name(name)} END")
            for name, kind in columns
            if kind in _FLOATING
        ],
    }.get(form)
    listed = ", ".join(f"{expression} AS {_name(name)}" for name, expression in replaced or ())
    chosen = f"* REPLACE ({listed})" if listed else "*"
    copy = f"COPY (SELECT {chosen} FROM exported) TO {layout.quoted(str(path))} ({_OPTIONS[form]})"  # noqa: S608 # quoted
    try:
        counted = rows.query("exported", copy)
    except duckdb.IOException as error:
        number = _ERRNO.search(str(error))
        if number is None or path.name not in str(error):
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
    return 0 if counted is None else int(counted.fetchall()[0][0])


def hidden(path: Path) -> Path:
    """Return the path beside a file under which it is written."""
    return path.absolute().with_name(f".{path.name}.tmp")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a hidden path, which replaces the file at the end, if something is there; on an error nothing is left."""
    new = hidden(path)
    try:
        new.unlink(missing_ok=True)
        yield new
        if new.exists():
            new.replace(path)
    except OSError as error:
        if error.filename == os.fspath(new):
            error.filename = os.fspath(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
