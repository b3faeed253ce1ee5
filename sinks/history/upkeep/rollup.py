"""Roll-ups: rows of closed hours as fewer rows, in files that are kept longer.

A roll-up has the name of the one file that it was made of, in the folder of its own table. So a file whose name is
there, or lies within the range of one that is there, has its roll-up, and nothing else has to be remembered. After rows
that came late, the hour's file is made again under a wider range, and so is its roll-up, whose name says that it
contains the earlier one. Every row is thus in exactly one roll-up, whenever the process is killed. A file without a
roll-up keeps its hour from being deleted.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb

from schemas.sections.service import History
from sinks.history import layout
from sinks.history.layout import HOUR_US, Name
from sinks.history.tables import merged
from sinks.history.tables.rolled import ROLLED, Rolled
from sinks.history.upkeep import compaction, damage, merge

log = logging.getLogger(__name__)

# Rows that are rolled up at once: all values of a step are held until its p95 is known.
_ROWS = 1_000_000
# Roll-ups of one pass, so that a long history that had none does not take a core for hours.
_MOST = 16


class Job(NamedTuple):
    """A roll-up to be made.

    Attributes:
        rolled: Its table.
        source: File that it is made of.
        target: Its own file.
        whole: Stand-in without rows that has all columns of the source's table.
    """

    rolled: Rolled
    source: Path
    target: Path
    whole: Path


def jobs(directory: Path, now_us: int, settings: History, failures: Mapping[Path, int]) -> list[Job]:
    """Return the roll-ups to be made now: the oldest hours first, since they are deleted first.

    Args:
        directory: Folder of the history.
        now_us: Time in microseconds.
        settings: For how long roll-ups are kept.
        failures: How often each file could not be made. It comes behind those that failed less often: a few that always
            fail keep no other from being made.

    Raises:
        OSError: A cursor file is invalid; see `layout.committed`.
    """
    committed = layout.committed(directory)
    due: list[tuple[int, Job]] = []
    for rolled in ROLLED:
        for folder, begin_us in layout.hours(directory, rolled.source):
            if compaction.settled(begin_us, now_us) and _is_kept(rolled, begin_us, now_us, settings):
                whole, target = layout.stand_in(directory, rolled.source), _target(directory, folder, rolled)
                due += [
                    (begin_us, Job(rolled, source, target / source.name, whole))
                    for source in _merged(folder, target, committed)
                ]
    due.sort(key=lambda each: (failures.get(each[1].target, 0), each[0]))
    return [job for _, job in due[:_MOST]]


def _merged(folder: Path, target: Path, committed: Mapping[str, int]) -> Iterator[Path]:
    """Yield the files without a roll-up that are the only one of their stream in their hour."""
    missing = set(_missing(folder, target))
    for files in layout.by_stream(folder).values():
        path, name = files[0]
        if len(files) == 1 and path in missing and name.last <= committed.get(name.created, name.last):
            yield path


def lacks(directory: Path, folder: Path, begin_us: int, now_us: int, settings: History) -> bool:
    """Tell whether an hour of a table has rows whose roll-up is to be kept and is not made yet."""
    return any(
        _is_kept(rolled, begin_us, now_us, settings) and _missing(folder, _target(directory, folder, rolled))
        for rolled in ROLLED
        if rolled.source == folder.parents[1].name
    )


def make(job: Job) -> None:
    """Make a roll-up, durable when this returns; a source that is damaged is set aside.

    Raises:
        OSError: It could not be made, as on a full disk.
    """
    folder = job.target.parent
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with merge.connected(folder) as connection:
            _roll(connection, job)
    except OSError:
        if not damage.set_aside(job.source):
            raise
        return
    for parent in (folder, *folder.parents[:3]):
        layout.sync(parent)
    layout.remove_contained(folder)
    log.info("history.rolled_up", extra={"file": str(job.target)})


def _roll(connection: duckdb.DuckDBPyConnection, job: Job) -> None:
    listed = ", ".join(layout.quoted(layout.literal(path)) for path in (job.source, job.whole))
    rows = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    if job.rolled.source == merged.TABLE:
        columns = [str(name) for name, *_ in connection.execute(f"DESCRIBE FROM {rows}").fetchall()]
        rows = f"(SELECT {merged.public(columns)} FROM {rows})"  # noqa: S608 # names of our own, and quoted paths
    connection.execute(f"CREATE TEMP TABLE rolled AS {job.rolled.query(rows, 'false')}")
    for condition in _slices(connection, rows) if job.rolled.by_node else ("true",):
        connection.execute(f"INSERT INTO rolled {job.rolled.query(rows, condition)}")
    merge.store(connection, "rolled", job.target)


def _slices(connection: duckdb.DuckDBPyConnection, rows: str) -> Iterator[str]:
    """Yield conditions on nodes that have few rows each, in the order of the nodes."""
    counted = connection.execute(
        f"SELECT node, count(*) FROM {rows} GROUP BY node ORDER BY node"  # noqa: S608 # quoted paths
    ).fetchall()
    nodes: list[str] = []
    total = 0
    for node, count in counted:
        if nodes and total + count > _ROWS:
            yield _between(nodes)
            nodes, total = [], 0
        nodes.append(node)
        total += count
    if nodes:
        yield _between(nodes)


def _between(nodes: list[str]) -> str:
    return f"node BETWEEN {layout.quoted(nodes[0])} AND {layout.quoted(nodes[-1])}"


def _is_kept(rolled: Rolled, begin_us: int, now_us: int, settings: History) -> bool:
    """Tell whether the roll-up of an hour is younger than its retention."""
    return begin_us + HOUR_US > now_us - int(rolled.retention_seconds(settings) * 1e6)


def _target(directory: Path, folder: Path, rolled: Rolled) -> Path:
    """Return the folder of an hour's roll-up, by the folder of its rows."""
    return directory / rolled.name / folder.parent.name / folder.name


def _missing(folder: Path, target: Path) -> list[Path]:
    """Return the files of an hour that have no roll-up."""
    made = [name for files in layout.by_stream(target).values() for _, name in files]
    return [path for files in layout.by_stream(folder).values() for path, name in files if not _has(made, name)]


def _has(made: list[Name], name: Name) -> bool:
    return any(each == name or each.contains(name) for each in made)
