"""Where the files of the history are, what their names say, and how a file comes to be there for good.

`<table>/date=YYYY-MM-DD/hour=HH/<stream creation>-<first>-<last>.parquet` holds the rows of one hour that came of the
stream sequences first to last. One cursor file for each stream says how far everything is written; a file beyond it
is the remainder of a flush that was cut short.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

HOUR_US = 3_600_000_000
_DIGITS = 20
_TEMPORARY = ".tmp"


class Name(NamedTuple):
    """What a file's name says."""

    created: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.created}-{self.first:0{_DIGITS}d}-{self.last:0{_DIGITS}d}.parquet"


def parse(path: Path) -> Name | None:
    """Return what the name of a file says; None: it is no file of rows."""
    created, _, rest = path.name.removesuffix(".parquet").partition("-")
    first, _, last = rest.partition("-")
    if path.suffix != ".parquet" or not (first.isdecimal() and last.isdecimal()):
        return None
    return Name(created, int(first), int(last))


def hour_folder(directory: Path, table: str, at_us: int) -> Path:
    """Return the folder of the hour (UTC) that a time is in."""
    hour = datetime.fromtimestamp(at_us // HOUR_US * 3600, UTC)
    return directory / table / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"


def hour_of(folder: Path) -> int | None:
    """Return the time in microseconds at which the hour of a folder begins; None: it is no such folder."""
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


def write(path: Path, content: bytes) -> Path:
    """Write a file beside its place, safe on the disk, and return where; `settle` puts it there.

    Raises:
        OSError: The disk is full or read-only; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}{_TEMPORARY}")
    try:
        with hidden.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            hidden.unlink()
        raise
    return hidden


def settle(hidden: Path, path: Path) -> None:
    """Move a written file to its place, and make that last."""
    hidden.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make the entries of a folder last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_contained(folder: Path) -> int:
    """Remove files whose rows a merged file of the folder holds too; returns how many."""
    found = [(path, name) for path in folder.glob("*.parquet") if (name := parse(path)) is not None]
    contained = [
        path
        for path, name in found
        if any(
            other != name and other.created == name.created and other.first <= name.first and name.last <= other.last
            for _, other in found
        )
    ]
    for path in contained:
        path.unlink(missing_ok=True)
    return len(contained)


def remove_temporary(directory: Path) -> None:
    """Remove what an earlier process was writing when it died."""
    for path in directory.glob(f"**/.*{_TEMPORARY}"):
        path.unlink(missing_ok=True)


def _cursor_path(directory: Path, stream: str) -> Path:
    return directory / f".{stream}.cursor.json"


def write_cursor(directory: Path, stream: str, created: str, sequence: int) -> None:
    """Commit: everything up to this sequence of the stream is written."""
    path = _cursor_path(directory, stream)
    settle(write(path, json.dumps({"created": created, "sequence": sequence}).encode()), path)


def read_cursor(directory: Path, stream: str, created: str) -> int | None:
    """Return the committed sequence; None: nothing usable says so."""
    found = _read(_cursor_path(directory, stream))
    return found[1] if found is not None and found[0] == created else None


def committed(directory: Path) -> dict[str, int]:
    """Return the committed sequence by stream creation, of the streams that are being written.

    Raises:
        OSError: A cursor file says nothing usable, so that nobody knows what is committed; a writer's start mends it.
    """
    cursors = {}
    for path in directory.glob(".*.cursor.json"):
        found = _read(path)
        if found is None:
            raise OSError(f"{path}: is no cursor; it is mended when the history sink starts")
        cursors[found[0]] = found[1]
    return cursors


def _read(path: Path) -> tuple[str, int] | None:
    try:
        content = json.loads(path.read_text())
        return str(content["created"]), int(content["sequence"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
