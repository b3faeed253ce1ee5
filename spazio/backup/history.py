"""Copies the files of a history while its sink writes, merges and deletes them.

A file never changes under its name, and a cursor file says up to which sequence of its stream everything is committed.
So a copy is consistent if it has exactly the rows up to its cursors: files that begin behind a cursor are left out, and
if files were merged or deleted while they were copied, the copy begins again with what is missing.
"""

import json
import time
from pathlib import Path
from typing import NamedTuple

from sinks.history import layout
from sinks.history.layout import Name
from spazio.backup.archive import Writer

FOLDER = "history"
_PASSES = 20
_PAUSE_SECONDS = 0.05
_FRESH_SECONDS = 10.0  # a pass that took longer is repeated, so that the streams still have what the copy lacks


class Unsteady(RuntimeError):
    """The files changed during every attempt."""


class _Cursors(NamedTuple):
    """The cursor files by name, and the committed sequence by stream creation."""

    files: dict[str, bytes]
    committed: dict[str, int]


def copy(writer: Writer, directory: Path) -> int:
    """Add the files of a history to a backup, consistently; returns their number.

    Args:
        writer: The backup.
        directory: Folder of the history; a sink may write it.

    Raises:
        Unsteady: Files vanished during every attempt.
        OSError: A file cannot be read, or the backup not be written.
    """
    for _ in range(_PASSES):
        began = time.monotonic()
        cursors = _cursors(directory)
        wanted = _committed(directory, cursors)
        if wanted is None or not _add(writer, directory, wanted) or _committed(directory, cursors) != wanted:
            time.sleep(_PAUSE_SECONDS)
            continue
        if time.monotonic() - began > _FRESH_SECONDS:
            continue
        for name, content in cursors.files.items():
            writer.add_bytes(f"{FOLDER}/{name}", content)
        return len(wanted)
    raise Unsteady(f"{directory} changed during each of {_PASSES} attempts to copy it; run the command again")


def _cursors(directory: Path) -> _Cursors:
    files = {path.name: path.read_bytes() for path in directory.glob(".*.cursor.json")}
    committed: dict[str, int] = {}
    for name, content in files.items():
        try:
            cursor = json.loads(content)
            committed[str(cursor["created"])] = int(cursor["sequence"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"{directory / name}: is no cursor; the history sink repairs it when it starts") from error
    return _Cursors(files, committed)


def _committed(directory: Path, cursors: _Cursors) -> set[Path] | None:
    """Return the files with exactly the rows up to the cursors; None: one has rows before and behind a cursor."""
    by_folder: dict[Path, list[tuple[Path, Name]]] = {}
    for path, name in layout.files(directory):
        limit = cursors.committed.get(name.created, name.last)
        if name.first > limit:
            continue
        if name.last > limit:  # merged since the cursor was read
            return None
        by_folder.setdefault(path.parent, []).append((path, name))
    return {path for files in by_folder.values() for path in layout.uncontained(files)}


def _add(writer: Writer, directory: Path, wanted: set[Path]) -> bool:
    """Make the backup's files those wanted; False: one of them has vanished."""
    entries = {f"{FOLDER}/{path.relative_to(directory).as_posix()}": path for path in wanted}
    for name in [name for name in writer.entries if name.startswith(f"{FOLDER}/") and name not in entries]:
        writer.forget(name)
    try:
        for name in sorted(entries.keys() - writer.entries.keys()):
            writer.add_path(name, entries[name])
    except FileNotFoundError:
        return False
    return True
