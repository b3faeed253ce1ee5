"""Compaction: merges the small files of an hour into one, and removes old hours.

The merged file is written beside the small ones under a name whose range contains theirs; then the small ones are
removed. A crash in between leaves both, so files whose range lies within another file of the folder are removed first.
For some milliseconds, a query may count rows of the hour twice or miss a file that it has listed; a second try is
correct.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb

from sinks.history import layout
from sinks.history.layout import HOUR_US, Name

log = logging.getLogger(__name__)

_SETTLED_US = 10 * 60 * 1_000_000
_MEMORY = "512MB"


def compact(directory: Path, now_us: int) -> int:
    """Merge the files of each hour that ended ten minutes ago; returns the number of files removed.

    Raises:
        OSError: The disk is full or read-only; the small files are still there.
    """
    removed = 0
    committed = layout.committed(directory)
    for folder in _hours(directory):
        removed += layout.remove_contained(folder)
        begin = layout.hour_of(folder)
        if begin is None or begin + HOUR_US + _SETTLED_US > now_us:
            continue
        for created, files in _by_stream(folder).items():
            # A file beyond the cursor is written again under another name; merging it would duplicate its rows.
            ready = [(path, name) for path, name in files if name.last <= committed.get(created, name.last)]
            if len(ready) > 1:
                _merge(folder, ready)
                removed += layout.remove_contained(folder)
    return removed


def drop(directory: Path, before_us: int) -> int:
    """Remove hours that ended before a time; returns the number of files removed."""
    removed = 0
    for folder in _hours(directory):
        begin = layout.hour_of(folder)
        if begin is None or begin + HOUR_US > before_us:
            continue
        for path in folder.glob("*.parquet"):
            if layout.parse(path) is not None:
                path.unlink()
                removed += 1
        for empty in (folder, folder.parent):
            with contextlib.suppress(OSError):  # keep a folder that is not empty
                empty.rmdir()
    return removed


def _hours(directory: Path) -> Iterator[Path]:
    yield from sorted(directory.glob("*/date=*/hour=*"))


def _by_stream(folder: Path) -> dict[str, list[tuple[Path, Name]]]:
    files_by_stream: dict[str, list[tuple[Path, Name]]] = {}
    for path in sorted(folder.glob("*.parquet")):
        name = layout.parse(path)
        if name is not None:
            files_by_stream.setdefault(name.created, []).append((path, name))
    return files_by_stream


def _merge(folder: Path, files: list[tuple[Path, Name]]) -> None:
    whole = Name(files[0][1].created, min(name.first for _, name in files), max(name.last for _, name in files))
    hidden = folder / f".{whole}.tmp"
    try:
        limits: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY,
            "temp_directory": str(folder / ".spill"),
        }
        with duckdb.connect(config=limits) as connection:
            paths = [str(path) for path, _ in files]
            rows = connection.read_parquet(paths, union_by_name=True, hive_partitioning=False)
            order = "node, at_us" if "node" in rows.columns else "at_us"
            rows.order(order).write_parquet(str(hidden), compression="zstd")
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
    except (duckdb.Error, OSError) as error:
        hidden.unlink(missing_ok=True)
        raise OSError(f"{folder}: {error}") from error
    layout.settle(hidden, folder / str(whole))
    log.info("history.compacted", extra={"folder": str(folder), "files": len(files)})
