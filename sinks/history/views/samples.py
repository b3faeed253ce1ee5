"""`samples_all`: what nodes used at any time, from the finest rows that the history still has of that hour.

An hour is deleted as a whole, so each hour comes from one table: from `samples` as long as it has the hour, then from
the finest roll-up. DuckDB compares the hours of the tables before it reads rows, and opens only the files it needs.
"""

from collections.abc import Sequence
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
    parts = [f"SELECT {_BESIDE}, 0 AS resolution_seconds, 1 AS samples, {_listed(values)} FROM {_ROWS}"]  # noqa: S608
    columns = [f"{name}{suffix}" for name in metric.NAMES for suffix in SUFFIXES]
    for number, (seconds, rolled) in enumerate(OF_SAMPLES.items(), 1):
        only = listing.hours(directory, rolled.name)
        for finer in TABLES[:number]:
            only += f" EXCEPT {listing.hours(directory, finer)}"
        parts.append(
            f"SELECT {_BESIDE}, {seconds}, samples, {_listed(columns)} "  # noqa: S608 # names of our own
            f"FROM {rolled.name} JOIN ({only}) USING (date, hour)"
        )
    return f"CREATE VIEW samples_all AS {' UNION ALL '.join(parts)}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(("cpus", "memory_bytes", *columns))
