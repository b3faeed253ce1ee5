"""Paths and names of the history's files, and durable writes.

`<table>/date=YYYY-MM-DD/hour=HH/<stream creation>-<first>-<last>.parquet` has the rows of one hour from the stream
sequences first to last. One cursor file per stream holds the committed sequence; a file beyond it belongs to an
interrupted flush.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

HOUR_US = 3_600_000_000
_DIGITS = 20
_TEMPORARY = ".tmp"
SPILL = ".spill"  # folder of what DuckDB does not hold in memory while it merges
DAMAGED = ".damaged"  # after `.parquet`, where no view looks


class Name(NamedTuple):
    """The parts of a file's name."""

    created: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.created}-{self.first:0{_DIGITS}d}-{self.last:0{_DIGITS}d}.parquet"

    def contains(self, other: "Name") -> bool:
        """Tell whether another file's range lies within this one's, as that of a file merged into it does."""
        same = other.created == self.created and other != self
        return same and self.first <= other.first and other.last <= self.last


def parse(path: Path) -> Name | None:
    """Parse the name of a file; None: it is not a file of rows."""
    created, _, rest = path.name.removesuffix(".parquet").partition("-")
    first, _, last = rest.partition("-")
    if path.suffix != ".parquet" or not (first.isdecimal() and last.isdecimal()):
        return None
    return Name(created, int(first), int(last))


def identity(created: str) -> str:
    """Return the identity of the stream that a file or cursor is of, without the number of the epoch.

    >>> identity("20261123T040506000001Z"), identity("20261123T040506000001ZE02Z")
    ('20261123T040506000001Z', '20261123T040506000001Z')
    """
    stream, epoch, _ = created.partition("ZE")
    return f"{stream}Z" if epoch else created


def hour_folder(directory: Path, table: str, at_us: int) -> Path:
    """Return the folder for the hour (UTC) of a time."""
    hour = datetime.fromtimestamp(at_us // HOUR_US * 3600, UTC)
    return directory / table / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"


def hour_of(folder: Path) -> int | None:
    """Return the start of a folder's hour in microseconds; None: it is not a folder of an hour."""
    try:
        text = f"{folder.parent.name.removeprefix('date=')} {folder.name.removeprefix('hour=')}"
        return int(datetime.strptime(text, "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        return None


def files(directory: Path) -> Iterator[tuple[Path, Name]]:
    """Yield every file of rows."""
    for path in sorted(directory.glob("*/date=*/hour=*/*.parquet")):
        name = parse(path)
        if name is not None:
            yield path, name


def hours(directory: Path, table: str = "*") -> Iterator[tuple[Path, int]]:
    """Yield the folder of each hour, and when it begins in microseconds."""
    for folder in sorted(directory.glob(f"{table}/date=*/hour=*")):
        begin_us = hour_of(folder)
        if begin_us is not None:
            yield folder, begin_us


def by_stream(folder: Path) -> dict[str, list[tuple[Path, Name]]]:
    """Return the files of an hour by the stream that they are of, in the order of their sequences."""
    files_by_stream: dict[str, list[tuple[Path, Name]]] = {}
    for path in sorted(folder.glob("*.parquet")):
        name = parse(path)
        if name is not None:
            files_by_stream.setdefault(name.created, []).append((path, name))
    return files_by_stream


def uncontained(files: Sequence[tuple[Path, Name]]) -> list[Path]:
    """Return the files of an hour without those that were merged into another one and are about to be removed."""
    return [path for path, name in files if not any(other.contains(name) for _, other in files)]


def stand_in(directory: Path, table: str) -> Path:
    """Return the file without rows that gives a table its columns; queries by time skip its hour."""
    return directory / table / "date=1970-01-01/hour=00/empty.parquet"


def literal(path: Path) -> str:
    """Return the pattern that only this path matches: DuckDB takes paths of files as patterns."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in str(path))


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def raise_first(failures: list[OSError]) -> None:
    """Raise the first failure, and state how many there are, if any.

    Raises:
        OSError: There is one.
    """
    if failures:
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        raise OSError(f"{failures[0]}{more}") from failures[0]


def hidden(path: Path) -> Path:
    """Return where a file is written before it is complete."""
    return path.with_name(f".{path.name}{_TEMPORARY}")


def write(path: Path, content: bytes) -> Path:
    """Write and sync a temporary file beside its final path, and return it; `settle` renames it.

    Raises:
        OSError: The disk is full or read-only; no file is left behind.
    """
    _make(path.parent)
    temporary = hidden(path)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def _make(folder: Path) -> None:
    """Make a folder, and sync the entries of those that it lies in where they are new."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def settle(temporary: Path, path: Path) -> None:
    """Rename a written file to its final path, and sync the folder."""
    temporary.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Sync the entries of a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_contained(folder: Path) -> int:
    """Remove files whose range lies within another file of the folder; returns their number."""
    named = [(path, name) for path in folder.glob("*.parquet") if (name := parse(path)) is not None]
    contained = {path for path, _ in named}.difference(uncontained(named))
    for path in contained:
        path.unlink(missing_ok=True)
    return len(contained)


def remove_temporary(directory: Path) -> None:
    """Remove temporary files that an earlier process left behind."""
    for path in list(directory.glob("**/.*")):
        if path.name == SPILL:
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.endswith(_TEMPORARY):
            path.unlink(missing_ok=True)


def _cursor_path(directory: Path, stream: str) -> Path:
    return directory / f".{stream}.cursor.json"


def write_cursor(
    directory: Path, stream: str, created: str, sequence: int, extra: Mapping[str, Any] | None = None
) -> None:
    """Commit the sequence of the stream up to which everything is written, with additional fields."""
    path = _cursor_path(directory, stream)
    content = {"created": created, "sequence": sequence, **(extra or {})}
    settle(write(path, json.dumps(content).encode()), path)


def read_content(directory: Path, stream: str) -> dict[str, Any] | None:
    """Return all fields of a cursor file; None: there is no valid one."""
    return _content(_cursor_path(directory, stream))


def read_cursor(directory: Path, stream: str, created: str) -> int | None:
    """Return the committed sequence; None: there is no valid cursor of this stream."""
    cursor = _read(_cursor_path(directory, stream))
    return cursor[1] if cursor is not None and cursor[0] == created else None


def committed(directory: Path) -> dict[str, int]:
    """Return the committed sequence by stream creation, of the streams that are being written.

    Raises:
        OSError: A cursor file is invalid, so the committed sequence is unknown; a writer repairs it at its start.
    """
    cursors = {}
    for path in directory.glob(".*.cursor.json"):
        cursor = _read(path)
        if cursor is None:
            raise OSError(f"{path}: is no cursor; the history sink repairs it when it starts")
        cursors[cursor[0]] = cursor[1]
    return cursors


def stored_us(directory: Path) -> int:
    """Return when the server stored the newest message that is written, in microseconds; 0: unknown."""
    newest = 0
    for path in directory.glob(".*.cursor.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            newest = max(newest, int(json.loads(path.read_text()).get("stored_us") or 0))
    return newest


def _read(path: Path) -> tuple[str, int] | None:
    content = _content(path)
    return None if content is None else (str(content["created"]), int(content["sequence"]))


def _content(path: Path) -> dict[str, Any] | None:
    """Return the fields of a cursor file, name and sequence among them; None: there is no valid one."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        str(content["created"]), int(content["sequence"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return content
