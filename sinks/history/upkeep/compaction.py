"""Compaction: which files are merged, and when.

Every flush writes a small file a table. Every ten minutes those of an hour that still fills become one file, and when
the hour has ended ten minutes ago, all of its files become one, which is encoded well then. So a row is written three
times, and an hour has the files of ten minutes at most, beside a few larger ones.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sinks.history import layout
from sinks.history.layout import HOUR_US, Name
from sinks.history.tables.rolled import BY_NAME
from sinks.history.upkeep import merge

_SETTLED_US = 10 * 60 * 1_000_000
_FEW = 8  # files that are left until there are more


def settled(begin_us: int, now_us: int) -> bool:
    """Tell whether an hour ended ten minutes ago, so that hardly any row of it is still to come."""
    return begin_us + HOUR_US + _SETTLED_US <= now_us


def compact(
    directory: Path, now_us: int, grouped: frozenset[Path] = frozenset(), merged: dict[Path, int] | None = None
) -> Iterator[int]:
    """Merge the files of each hour that ended ten minutes ago; yields the number of files removed, hour by hour.

    Damaged files are set aside; the others of their hour are merged. A file that is the only one of its hour stays as
    it is, unless it is one that `group` has written fast. Rows of a node whose clock is late do not have all of an old
    hour written again each time: unless they are many files, they wait for an hour. Roll-ups wait until the rows that
    they are of are gone: one of more rows replaces theirs, which it does not if they are in a file with others.

    Args:
        directory: Folder of the history.
        now_us: Time in microseconds.
        grouped: Files that were merged while their hour still filled.
        merged: Hours that were merged in the last hour, and when; updated. None: none was.

    Raises:
        OSError: An hour could not be merged, as on a full disk: its small files are still there. The other hours are
            merged.
    """
    committed = layout.committed(directory)
    failures: list[OSError] = []
    merged = {} if merged is None else merged
    for folder in [folder for folder, at_us in merged.items() if at_us <= now_us - HOUR_US]:
        del merged[folder]
    for folder, begin_us in layout.hours(directory):
        removed = 0
        try:
            removed += layout.remove_contained(folder)
            if settled(begin_us, now_us) and not (folder in merged and _has_few(folder)):
                if count := _compact_hour(folder, committed, grouped):
                    merged[folder] = now_us
                removed += count
        except OSError as error:
            failures.append(error)
        yield removed
    layout.raise_first(failures)


def _has_source(folder: Path) -> bool:
    """Tell whether the hour is of roll-ups, and rows that they are of are there."""
    table = folder.parents[1]
    rolled = BY_NAME.get(table.name)
    if rolled is None:
        return False
    return any((table.parent / rolled.source / folder.relative_to(table)).glob("*.parquet"))


def _has_few(folder: Path) -> bool:
    return all(len(files) <= _FEW for files in layout.by_stream(folder).values())


def _compact_hour(folder: Path, committed: Mapping[str, int], grouped: frozenset[Path]) -> int:
    removed = 0
    for files in layout.by_stream(folder).values():
        ready = [(path, name) for path, name in files if _is_committed(name, committed)]
        is_due = len(ready) > 1 or any(path in grouped for path, _ in ready)
        if is_due and not _has_source(folder):
            merge.merge(folder, ready)
            removed += layout.remove_contained(folder)
    return removed


def group(directory: Path, now_us: int, grouped: frozenset[Path]) -> Iterator[frozenset[Path]]:
    """Merge the small files of hours that still fill; yields the files that are merged ones, stream by stream.

    Args:
        directory: Folder of the history.
        now_us: Time in microseconds.
        grouped: Files that earlier calls have yielded; none: all files are taken as small, which costs one more merge.

    Raises:
        OSError: An hour could not be merged; the others are.
    """
    committed = layout.committed(directory)
    failures: list[OSError] = []
    for folder, begin_us in layout.hours(directory):
        if settled(begin_us, now_us):
            continue
        for files in layout.by_stream(folder).values():
            large = grouped.intersection(path for path, _ in files)
            small = _newest_small([each for each in files if _is_committed(each[1], committed)], grouped)
            try:
                if len(small) > _FEW and (merged := merge.merge(folder, small, final=False)):
                    large |= {merged}
                    layout.remove_contained(folder)
            except OSError as error:
                failures.append(error)
            yield large
    layout.raise_first(failures)


def _newest_small(files: list[tuple[Path, Name]], grouped: frozenset[Path]) -> list[tuple[Path, Name]]:
    """Return the files behind the last merged one: a range over a merged one would say that it contains its rows."""
    last = max((name.last for path, name in files if path in grouped), default=-1)
    return [(path, name) for path, name in files if name.first > last]


def _is_committed(name: Name, committed: Mapping[str, int]) -> bool:
    """Tell whether a file is final: one beyond the cursor is written again, and merging it would duplicate its rows."""
    return name.last <= committed.get(name.created, name.last)
