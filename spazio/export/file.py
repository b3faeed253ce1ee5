"""Rows of DuckDB as a file: Parquet, CSV with a heading, or JSON with one object a line.

DuckDB writes the file itself, so rows beyond the memory pass through. CSV has no lists, so lists, maps and structs are
JSON text there. JSON has no numbers that are not finite, so those are null in it, also within lists, maps and structs.
"""

import contextlib
import glob
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import duckdb
from duckdb.sqltypes import DuckDBPyType

from bus.access import file_lock
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
_TOKEN = secrets.token_hex(8)  # two containers may have the same process number
_ANY_TOKEN = "[0-9a-f]" * 16
_SWEEP_SECONDS = 1.0  # far more than another process takes to remove what was left


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
    columns = list(zip(rows.columns, rows.types, strict=True))
    finite = {name: expression for name, kind in columns if (expression := _finite(_name(name), kind))}
    nested = {name: finite.get(name, _name(name)) for name, kind in columns if kind.id in _NESTED}
    replaced = {"csv": {name: f"to_json({value})" for name, value in nested.items()}, "json": finite}.get(form, {})
    listed = ", ".join(f"{expression} AS {_name(name)}" for name, expression in replaced.items())
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
    """Return the path beside a file under which this process writes it; another that writes the same has its own."""
    return path.absolute().with_name(f".{path.name}.{_TOKEN}.tmp")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a hidden path, which replaces the file at the end, if something is there; on an error nothing is left.

    What processes that were killed have left of the file is removed first, unless something else is written in the
    folder at that time.
    """
    new = hidden(path)
    with _sharing(path):
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


@contextlib.contextmanager
def _sharing(path: Path) -> Iterator[None]:
    """Share the lock of a file's folder while the file is written, so that no other process removes it as left."""
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):  # the folder cannot be read, or its file system has no locks
            folder = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
            closing.callback(os.close, folder)
            _sweep(folder, path)
            _share(folder)
        yield


def _sweep(folder: int, path: Path) -> None:
    try:
        file_lock.take(folder)
    except file_lock.Held:
        return
    for left in path.absolute().parent.glob(f".{glob.escape(path.name)}.{_ANY_TOKEN}.tmp"):
        with contextlib.suppress(OSError):
            left.unlink()


def _share(folder: int) -> None:
    """Share the lock; without it where another program keeps it, as `flock FOLDER spazio export` does."""
    until = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < until:
        try:
            file_lock.take(folder, shared=True)
        except file_lock.Held:
            time.sleep(0.01)
        else:
            return


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _finite(value: str, kind: DuckDBPyType, depth: int = 0) -> str | None:
    """Return an expression for a value in which numbers that are not finite are null; None: it has no such numbers."""
    each = f"each_{depth}"
    if kind.id in _FLOATING:
        return f"CASE WHEN isfinite({value}) THEN {value} END"
    if kind.id in ("list", "array"):
        inner = _finite(each, _children(kind)[0][1], depth + 1)
        return inner and f"list_transform({value}, lambda {each}: {inner})"
    if kind.id == "map":
        inner = _finite(f"{each}.value", _children(kind)[1][1], depth + 1)
        pair = f"struct_pack(key := {each}.key, value := {inner})"
        return inner and f"map_from_entries(list_transform(map_entries({value}), lambda {each}: {pair}))"
    if kind.id == "struct":
        fields = {name: (f"struct_extract({value}, {layout.quoted(name)})", of) for name, of in _children(kind)}
        finite = {name: _finite(*field, depth) for name, field in fields.items()}
        packed = ", ".join(f"{_name(name)} := {finite[name] or fields[name][0]}" for name in fields)
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END" if any(finite.values()) else None
    return None


def _children(kind: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    return [(name, child) for name, child in kind.children if isinstance(child, DuckDBPyType)]
