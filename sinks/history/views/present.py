"""The newest time of a history, for views, questions and exports that show what is, and what came shortly before.

A node whose clock is ahead is newer than all others, and measured against it these would be gone. So rows of the future
do not count, unless most nodes have some: then it is this machine's clock that is behind, or the history is a replay
that was shifted and has run ahead of it. `newest_time` answers this from the hours of `listing.newest_hours`, so that
any question can be measured against it.
"""

from collections.abc import Collection
from pathlib import Path

from sinks.history.views import listing

# A node has rows of at least one of them all the time. The later ones have more rows.
TABLES = ("availability", "samples")


def statement(directory: Path, tables: Collection[str]) -> str:
    """Return the statement that creates `newest_time`, a row with `time` and `at_us`.

    It reads the hours of `listing.newest_hours`, and samples only of those that have no availability.

    Args:
        directory: Folder of the history.
        tables: Those of `TABLES` that exist, at least one.
    """
    names = [name for name in TABLES if name in tables]
    hours = [listing.hours(directory, name) for name in names]
    only = [" EXCEPT ".join(("FROM recorded", *hours[:number])) for number in range(len(names))]
    rows = " UNION ALL ".join(
        f"SELECT node, at_us FROM {name} JOIN ({each}) USING (date, hour)"  # noqa: S608 # names of our own, quoted paths
        for name, each in zip(names, only, strict=True)
    )
    return f"""
CREATE VIEW newest_time AS
WITH recorded AS ({listing.newest_hours(" UNION ".join(hours))})
SELECT to_timestamp(at_us / 1000000.0) AS time, at_us FROM ({newest(f"({rows})")})
"""  # noqa: S608 # as above


def newest(rows: str) -> str:
    """Return the query of the newest time, a row with `at_us`.

    Args:
        rows: What has `node` and `at_us`: a table, a view or a query in brackets.
    """
    return f"""
SELECT CASE WHEN quantile_disc(at_us, 0.5) > epoch_us(now()) THEN max(at_us)
    ELSE max(at_us) FILTER (at_us <= epoch_us(now())) END AS at_us
FROM (SELECT node, max(at_us) AS at_us FROM {rows} GROUP BY node)
"""  # noqa: S608 # names of our own
