"""`samples_all`: what nodes used at any time, from the finest rows that the history still has of that hour.

Each hour comes from one table, the finest that has it whole. A table in which only rows that came late are left of an
hour, after the others were deleted or set aside as damaged, has not: a coarser one has a file whose messages are in
none of its files. DuckDB compares the names of files before it reads rows, and opens only the files it needs.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from schemas import metric
from sinks.history.tables import sample
from sinks.history.tables.rolled import OF_SAMPLES, SUFFIXES
from sinks.history.views import listing

_ROWS = "samples"
# Files of older versions may lack some of them.
COLUMNS = frozenset(sample.SAMPLE)
TABLES = (_ROWS, *(rolled.name for rolled in OF_SAMPLES.values()))
_BESIDE = "time, node, at_us, date, hour"


def statement(directory: Path) -> str:
    """Return the statement that creates the view; the views of `TABLES` exist."""
    values = [f"{name} AS {name}{suffix}" for name in metric.NAMES for suffix in SUFFIXES]
    columns = [f"{name}{suffix}" for name in metric.NAMES for suffix in SUFFIXES]
    described = [
        f"0 AS resolution_seconds, 1 AS samples, {_listed(values)}",
        *(f"{seconds}, samples, {_listed(columns)}" for seconds in OF_SAMPLES),
    ]
    listed = [f"{_files(table)} AS ({listing.files(directory, table)})" for table in TABLES]
    parts = [
        f"SELECT {_BESIDE}, {each} FROM {table} JOIN {_hours(table)} USING (date, hour)"  # noqa: S608 # names of our own
        for table, each in zip(TABLES, described, strict=True)
    ]
    return f"CREATE VIEW samples_all AS WITH {', '.join([*listed, *_chosen()])} {' UNION ALL '.join(parts)}"


def _chosen() -> Iterator[str]:
    """Yield tables for `WITH`: the hours that come from each of `TABLES`, by the names of files."""
    for number, table in enumerate(TABLES):
        query = f"SELECT DISTINCT date, hour FROM {_files(table)}"  # noqa: S608 # names of our own
        finer = [f"FROM {_hours(each)}" for each in TABLES[:number]]
        coarser = [listing.lacking(_files(each), _files(table)) for each in TABLES[number + 1 :]]
        yield f"{_hours(table)} AS ({' EXCEPT '.join([query, *finer, *coarser])})"


def _files(table: str) -> str:
    return f"files_of_{table}"


def _hours(table: str) -> str:
    return f"hours_of_{table}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(("cpus", "memory_bytes", *columns))
