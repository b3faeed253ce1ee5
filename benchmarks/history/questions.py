"""The questions of docs/sql.md, and how long their answers take."""

import re
import time
from pathlib import Path

import duckdb

from sinks.history import view
from sinks.history.table import TABLES
from sinks.history.tables.rolled import ROLLED
from sinks.period import Period

_PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
_RECENT_US = 15 * 60 * 1_000_000
_RUNS, _LONG_SECONDS = 3, 3.0


def listed() -> dict[str, str]:
    """Return each statement of the page by its question."""
    statements = re.findall(r"([^\n]+)\n\n```sql\n(.+?)\n```", _PAGE.read_text(), re.DOTALL)
    return dict(statements)


def times(folder: Path, *, recent: bool) -> dict[str, float]:
    """Return the seconds of the fastest of three answers to each question; one that takes long is asked once.

    Args:
        folder: Folder of the history.
        recent: Ask them of the last fifteen minutes of rows instead of the whole history.
    """
    results: dict[str, float] = {}
    with view.connect(folder) as connection:
        if recent:
            _narrow(connection)
        for question, statement in listed().items():
            took: list[float] = []
            while len(took) < _RUNS and sum(took) < _LONG_SECONDS:
                began = time.perf_counter()
                connection.execute(statement).fetchall()
                took.append(time.perf_counter() - began)
            results[question] = round(min(took), 3)
    return results


def _narrow(connection: duckdb.DuckDBPyConnection) -> None:
    """Let all tables have the rows of the last fifteen minutes alone, as conditions on date and time do."""
    names = [table.name for table in TABLES]
    newest = max(connection.execute(f"SELECT coalesce(max(at_us), 0) FROM {name}").fetchall()[0][0] for name in names)
    condition = Period(newest - _RECENT_US, newest + 1).condition()
    for name in [*names, *(rolled.name for rolled in ROLLED)]:
        connection.execute(f"ALTER VIEW {name} RENAME TO {name}_whole")
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {name}_whole WHERE {condition}")
