"""What of the history is exported: tables, a range of time, nodes."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from sinks.history import layout
from sinks.history.table import TABLES
from sinks.history.tables.rolled import ROLLED
from sinks.history.views import present
from sinks.period import LAST_US, Period

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_COLUMNS = (
    "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY 1"
)


class Unselectable(ValueError):
    """There is no such table, or a text is no time; the message says which."""


def parse(since: str | None, until: str | None, newest_us: int) -> Period:
    """Return the range between two texts.

    Args:
        since: ISO 8601, in local time unless it names a zone, or a duration before the newest row, such as `15m`; None:
            the beginning.
        until: The same; None: the end.
        newest_us: Time of the newest row.

    Raises:
        Unselectable: A text is neither, or the range is empty.

    >>> parse("90s", None, 100_000_000)
    Period(from_us=10000000, to_us=100000001)
    """
    from_us = 0 if since is None else _moment(since, newest_us)
    to_us = newest_us + 1 if until is None else _moment(until, newest_us)
    if from_us >= to_us:
        raise Unselectable(f"the range ends at {text(to_us)}, before it begins at {text(from_us)}")
    return Period(from_us, to_us)


def text(at_us: int) -> str:
    """Return a time in UTC.

    >>> text(1_700_000_000_500_000)
    '2023-11-14T22:13:20Z'
    """
    return f"{datetime.fromtimestamp(min(at_us, LAST_US - 1) // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def spoken(period: Period) -> str:
    """Return a period in words.

    >>> spoken(Period(0, 1_700_000_000_000_000))
    'up to 2023-11-14T22:13:20Z'
    """
    return f"from {text(period.from_us)} to {text(period.to_us)}" if period.from_us else f"up to {text(period.to_us)}"


def _moment(given: str, newest_us: int) -> int:
    try:
        if ago := _AGO.fullmatch(given.strip()):
            return max(0, newest_us - round(float(ago[1]) * _SECONDS[ago[2]] * 1e6))
        return min(LAST_US, max(0, round(datetime.fromisoformat(given.strip()).timestamp() * 1e6)))
    except (ValueError, OverflowError) as error:
        raise Unselectable(
            f"{given!r} is no time; write 2026-11-23T10:00Z, or 15m for 15 minutes before the newest row (s, m, h, d)"
        ) from error


def newest(directory: Path, connection: duckdb.DuckDBPyConnection) -> int:
    """Return the time of the newest row in microseconds, of those that are not of the future unless most nodes are.

    Only the newest hour is read, and those of `listing.newest_hours` if it has rows of the future.

    Raises:
        Unselectable: The history has no rows.
    """
    hours = {(path.parents[2].name, layout.hour_of(path.parent)) for path, _ in layout.files(directory)}
    last = max((hour for _, hour in hours if hour is not None), default=None)
    if last is None:
        raise Unselectable(f"{directory} has no rows yet")
    names = {each.name for each in TABLES} | {each.name for each in ROLLED}
    whole = Period(last, last + layout.HOUR_US)
    rows = [
        connection.execute(f"SELECT max(at_us) FROM {table} WHERE {whole.condition()}").fetchall()  # noqa: S608 # ours
        for table, hour in hours
        if hour == last and table in names
    ]
    of_all = max((int(row[0][0]) for row in rows if row[0][0] is not None), default=last)
    if of_all <= time.time_ns() // 1000 or not {table for table, _ in hours}.intersection(present.TABLES):
        return of_all
    # One node may have a clock that is ahead, as far as the sink accepts it.
    (row,) = connection.execute("SELECT at_us FROM newest_time").fetchall()
    return of_all if row[0] is None else int(row[0])


def tables(connection: duckdb.DuckDBPyConnection, names: Sequence[str], nodes: Sequence[str]) -> Mapping[str, str]:
    """Return the tables to export, each with its condition on nodes (or nothing).

    Args:
        connection: Has the views of the history.
        names: Tables and views that have `at_us`; none: all tables, or with nodes, all that have nodes.
        nodes: Names of nodes; none: all.

    Raises:
        Unselectable: A table does not exist, or has no time or no nodes.
    """
    columns = {str(table): set(listed) for table, listed in connection.execute(_COLUMNS).fetchall()}
    timed = sorted(table for table, listed in columns.items() if "at_us" in listed)
    if missing := [name for name in names if name not in timed]:
        raise Unselectable(f"there is no table {missing[0]} with times; there are {', '.join(timed)}")
    if nodeless := [name for name in names if nodes and "node" not in columns[name]]:
        raise Unselectable(f"{nodeless[0]} has no nodes; leave out --node, or ask with --query")
    chosen = names or [each.name for each in TABLES if each.name in columns]
    listed = ", ".join(map(layout.quoted, nodes))
    condition = f"node IN ({listed})" if nodes else ""
    return {name: condition for name in dict.fromkeys(chosen) if not nodes or "node" in columns[name]}


def statement(table: str, within: Period, condition: str) -> str:
    """Return the statement that reads a table's rows of a range, file by file."""
    also = f" AND {condition}" if condition else ""
    return f"SELECT * FROM {table} WHERE {within.condition()}{also}"  # noqa: S608 # a known table, quoted names


def missing(
    connection: duckdb.DuckDBPyConnection, chosen: Iterable[str], nodes: Sequence[str], within: Period
) -> list[str]:
    """Return a sentence for each node that has no rows in the range.

    Args:
        connection: Has the views of the history.
        chosen: Tables, which have nodes.
        nodes: Names of nodes.
        within: Range.
    """
    sentences = list[str]()
    for node in nodes:
        named = f"node = {layout.quoted(node)}"
        if _any(connection, chosen, f"{named} AND {within.condition()}"):
            continue
        if _any(connection, chosen, named):
            sentences.append(f"node {node} has no rows {spoken(within)}, only at other times; see --from and --to")
        else:
            listing = 'spazio sql "SELECT DISTINCT node FROM samples"'
            sentences.append(f"no row is of node {node}; {listing} lists the nodes")
    return sentences


def _any(connection: duckdb.DuckDBPyConnection, tables: Iterable[str], condition: str) -> bool:
    selected = (f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1" for table in tables)  # noqa: S608 # known, quoted
    return any(connection.execute(each).fetchone() for each in selected)
