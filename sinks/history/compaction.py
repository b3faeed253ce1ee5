"""Compaction: merges the small files of an hour into one, and removes old hours.

The merged file is written beside the small ones under a name whose range contains theirs; then the small ones are
removed. A crash in between leaves both, so files whose range lies within another file of the folder are removed first.
For some milliseconds, a query may count rows of the hour twice or miss a file that it has listed; a second try is
correct.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb

from sinks.history import damage, layout
from sinks.history.layout import HOUR_US, Name

log = logging.getLogger(__name__)

_SETTLED_US = 10 * 60 * 1_000_000
_MEMORY = "512MB"
# Tables of numbers take the encodings of version 2 (delta, byte streams): samples 8 % smaller, written in 60 % of the
# time. Rows with lists and texts are a third larger by them.
_NUMBERS = ("samples", "smoothed")
_MIXED = "COMPRESSION zstd"
_COLUMNS = f"{_MIXED}, PARQUET_VERSION v2, ROW_GROUP_SIZE 245760"


def compact(directory: Path, now_us: int) -> int:
    """Merge the files of each hour that ended ten minutes ago; returns the number of files removed.

    Damaged files are set aside; the others of their hour are merged.

    Raises:
        OSError: An hour could not be merged, as on a full disk: its small files are still there. The other hours are
            merged.
    """
    removed = 0
    committed = layout.committed(directory)
    failures: list[OSError] = []
    for folder in _hours(directory):
        try:
            removed += _compact_hour(folder, committed, now_us)
        except OSError as error:
            failures.append(error)
    layout.raise_first(failures)
    return removed


def _compact_hour(folder: Path, committed: Mapping[str, int], now_us: int) -> int:
    removed = layout.remove_contained(folder)
    begin = layout.hour_of(folder)
    if begin is None or begin + HOUR_US + _SETTLED_US > now_us:
        return removed
    for created, files in _by_stream(folder).items():
        # A file beyond the cursor is written again under another name; merging it would duplicate its rows.
        ready = [(path, name) for path, name in files if name.last <= committed.get(created, name.last)]
        if len(ready) > 1:
            _merge_readable(folder, ready)
            removed += layout.remove_contained(folder)
    return removed


def drop(directory: Path, before_us: int) -> int:
    """Remove hours that ended before a time; returns the number of files removed.

    Raises:
        OSError: An hour could not be removed; the others are.
    """
    removed = 0
    failures: list[OSError] = []
    for folder in _hours(directory):
        begin = layout.hour_of(folder)
        if begin is None or begin + HOUR_US > before_us:
            continue
        try:
            removed += _remove(folder)
        except OSError as error:
            failures.append(error)
    layout.raise_first(failures)
    return removed


def limit(directory: Path, max_bytes: int, now_us: int) -> int:
    """Remove the oldest whole hours of all tables until the files fit; returns the number of files removed.

    The current hour stays, even if it is larger than the limit.

    Raises:
        OSError: An hour could not be removed; newer ones were removed in its place.
    """
    folders_by_hour: dict[int, list[Path]] = {}
    bytes_by_hour: dict[int, int] = {}
    for folder in _hours(directory):
        begin = layout.hour_of(folder)
        if begin is not None:
            folders_by_hour.setdefault(begin, []).append(folder)
            bytes_by_hour[begin] = bytes_by_hour.get(begin, 0) + sum(path.stat().st_size for path in _all_files(folder))
    removed, total = 0, sum(bytes_by_hour.values())
    failures: list[OSError] = []
    for begin in sorted(folders_by_hour):
        if total <= max_bytes or begin + HOUR_US > now_us:
            break
        try:
            for folder in folders_by_hour[begin]:
                removed += _remove(folder)
            total -= bytes_by_hour[begin]
        except OSError as error:
            failures.append(error)
    if removed:
        log.warning("history.limited", extra={"files": removed, "bytes": total, "max_bytes": max_bytes})
    layout.raise_first(failures)
    return removed


def _remove(folder: Path) -> int:
    files = _all_files(folder)
    for path in files:
        path.unlink()
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):  # keep a folder that is not empty
            empty.rmdir()
    return len(files)


def _all_files(folder: Path) -> list[Path]:
    """Return the files of rows, and those that were set aside."""
    paths = [*folder.glob("*.parquet"), *folder.glob(f"*.parquet{layout.DAMAGED}")]
    return [path for path in paths if layout.parse(path.with_name(path.name.removesuffix(layout.DAMAGED))) is not None]


def _hours(directory: Path) -> Iterator[Path]:
    yield from sorted(directory.glob("*/date=*/hour=*"))


def _by_stream(folder: Path) -> dict[str, list[tuple[Path, Name]]]:
    files_by_stream: dict[str, list[tuple[Path, Name]]] = {}
    for path in sorted(folder.glob("*.parquet")):
        name = layout.parse(path)
        if name is not None:
            files_by_stream.setdefault(name.created, []).append((path, name))
    return files_by_stream


def _merge_readable(folder: Path, files: list[tuple[Path, Name]]) -> None:
    try:
        _merge(folder, files)
    except OSError:
        readable = [(path, name) for path, name in files if not damage.set_aside(path)]
        if len(readable) == len(files):
            raise
        if len(readable) > 1:
            _merge(folder, readable)


def _merge(folder: Path, files: list[tuple[Path, Name]]) -> None:
    whole = Name(files[0][1].created, min(name.first for _, name in files), max(name.last for _, name in files))
    hidden = folder / f".{whole}.tmp"
    try:
        limits: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _MEMORY,
            "temp_directory": str(folder / ".spill"),
        }
        with duckdb.connect(config=limits) as connection:
            paths = [layout.literal(path) for path, _ in files]
            rows = connection.read_parquet(paths, union_by_name=True, hive_partitioning=False)
            order = "node, at_us" if "node" in rows.columns else "at_us"
            rows.order(order).create_view("merged")
            options = _COLUMNS if folder.parents[1].name in _NUMBERS else _MIXED
            connection.execute(f"COPY merged TO {layout.quoted(str(hidden))} (FORMAT parquet, {options})")
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
    except (duckdb.Error, OSError) as error:
        hidden.unlink(missing_ok=True)
        raise OSError(f"{folder}: {error}") from error
    layout.settle(hidden, folder / str(whole))
    log.info("history.compacted", extra={"folder": str(folder), "files": len(files)})
