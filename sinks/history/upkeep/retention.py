"""Retention: removes hours that are too old, or the oldest beyond a number of bytes; rows only after their roll-up."""

import contextlib
import itertools
import logging
from pathlib import Path

from schemas.sections.service import History
from sinks.history import layout
from sinks.history.layout import HOUR_US
from sinks.history.tables import rolled
from sinks.history.upkeep import rollup

log = logging.getLogger(__name__)

_DAY_US = 24 * HOUR_US
# These have rows for each pod that starts: gigabytes in 90 days where many start.
_OF_PODS = ("decisions", "podfacts")
# Of these a row counts for weeks, or holds until the next one, which may come after months. The smallest come last.
_LASTING = (*_OF_PODS, "trust", "nodes")
# Tables in the order in which their hours go beyond a number of bytes: rows, roll-ups (the finest first), and these.
_ORDER = {name: rank for rank, name in enumerate((*rolled.BY_NAME, *_LASTING), 1)}


def confirmed(directory: Path, now_us: int) -> int:
    """Return the time, at most a day after the server stored what was written last, by its clock.

    A clock that is ahead would remove all hours. Those of a pipeline that stands still stay.
    """
    stored_us = layout.stored_us(directory)
    return min(now_us, stored_us + _DAY_US) if stored_us else now_us


def drop(directory: Path, now_us: int, settings: History) -> int:
    """Remove hours that are older than the retention of their table; returns the number of files removed.

    Raises:
        OSError: An hour could not be removed; the others are.
    """
    removed = waiting = 0
    failures: list[OSError] = []
    for folder, begin_us in layout.hours(directory):
        if begin_us + HOUR_US > now_us - int(_retention_seconds(folder.parents[1].name, settings) * 1e6):
            continue
        if rollup.lacks(directory, folder, begin_us, now_us, settings):
            waiting += 1
            continue
        try:
            removed += _remove(folder)
        except OSError as error:
            failures.append(error)
    if waiting:
        log.warning("history.rollup_missing", extra={"hours": waiting})
    layout.raise_first(failures)
    return removed


def _retention_seconds(table: str, settings: History) -> float:
    made = rolled.BY_NAME.get(table)
    if made is not None:
        return made.retention_seconds(settings)
    longest = settings.retention_1m_seconds if table in _LASTING else 0.0
    return max(settings.retention_seconds, longest)


def limit(directory: Path, now_us: int, settings: History) -> int:
    """Remove whole hours until the files fit into `max_bytes`; returns the number of files removed.

    The oldest hours of rows go first, then those of the finest roll-ups, and those of states, decisions and trust
    last. Decisions and states of pods beyond half of the limit count as other rows. The current hour stays, and so do
    rows that have no roll-up yet, even if they are larger than the limit.

    Raises:
        OSError: An hour could not be removed; newer ones were removed in its place.
    """
    folders: dict[tuple[int, int], list[Path]] = {}
    total, many = 0, _beyond(directory, settings.max_bytes / 2)
    for folder, begin_us in layout.hours(directory):
        rank = 0 if folder in many else _ORDER.get(folder.parents[1].name, 0)
        folders.setdefault((rank, begin_us), []).append(folder)
        total += _bytes(folder)
    removed = 0
    failures: list[OSError] = []
    for (_, begin_us), hour in sorted(folders.items()):
        if total <= settings.max_bytes:
            break
        if begin_us + HOUR_US > now_us:
            continue
        for folder in hour:
            if rollup.lacks(directory, folder, begin_us, now_us, settings):
                continue
            try:
                size = _bytes(folder)
                removed += _remove(folder)
                total -= size
            except OSError as error:
                failures.append(error)
    if removed:
        log.warning("history.limited", extra={"files": removed, "bytes": total, "max_bytes": settings.max_bytes})
    layout.raise_first(failures)
    return removed


def _beyond(directory: Path, most: float) -> set[Path]:
    """Return the oldest hours of `_OF_PODS`, without which these tables fit into so many bytes."""
    hours = [hour for table in _OF_PODS for hour in layout.hours(directory, table)]
    newest_first = [folder for folder, _ in sorted(hours, key=lambda hour: hour[1], reverse=True)]
    sizes = itertools.accumulate(map(_bytes, newest_first))
    return {folder for folder, size in zip(newest_first, sizes, strict=True) if size > most}


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _all_files(folder))


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
