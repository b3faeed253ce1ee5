"""Convert files of samples, in any order and units, to one Parquet file in order of time.

DuckDB sorts without keeping all rows in memory, so that a trace of a hundred million rows works on a laptop. Each row
is either in the result or a fault; a fault has a file, row, column and value.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from producers.recorded import mapping
from producers.recorded.mapping import Column, Unmapped
from schemas import metric

_MEMORY = "1GB"
_EXAMPLES = 5
_FUTURE_US = 2**53 - 1 - 60_000_000
FILE, _NUMBER = "__file", "__number"  # columns that no recording has
_OF_PODS = {"pod", "span_us"}  # columns of the table `pods`
_STREAM = 1 << 48  # more messages than any stream holds
# Limits of the schemas; other rows would become dead letters. DuckDB's \s matches fewer characters than Python's.
_NODE = r"[^\s\x00-\x1f\x7f\x{85}\pZ]{1,253}"
_MAXIMUM = {"cpus": 65_536}


class Fault(NamedTuple):
    """An unusable row; `row` counts the rows of its file from 1, without the header."""

    file: str
    row: int
    column: str
    value: str


class Prepared(NamedTuple):
    """Samples in order of time.

    Attributes:
        path: The Parquet file.
        rows: Rows in it.
        metrics: Its metrics, in the order of the metrics table.
        exact: Rows have the position in the stream that they were recorded from.
        first_us, last_us: Times of its first and last row; 0 without any.
        faulty: Number of rows that were excluded.
        faults: The first of them.
    """

    path: Path
    rows: int
    metrics: list[str]
    exact: bool
    first_us: int
    last_us: int
    faulty: int
    faults: list[Fault]


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection with a memory limit that spills into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "temp_directory": str(folder / "spill"),
    }
    connection = duckdb.connect(str(folder / "prepared.duckdb"), config=limits)
    # Times without a zone are UTC on every machine.
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def samples(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[Path],
    given: Sequence[Column],
    streams: Sequence[str],
    target: Path,
) -> Prepared:
    """Sort samples by time.

    Args:
        connection: From `connect`.
        files: All CSV or all Parquet.
        given: Columns with other names in the files.
        streams: Identities of the streams that a history was written from, oldest first; empty: no history.
        target: File to write.

    Raises:
        Unmapped: A needed column is missing, or the files cannot be read.
    """
    source = _source(files)
    try:
        described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()  # noqa: S608 # quoted paths
        available = [str(row[0]) for row in described]
        chosen = mapping.resolve(given, [name for name in available if name != FILE])
        _check_metrics(connection, [] if streams else files, chosen)
        sort_key = position(streams) if streams and "sequence" in available else "NULL::BIGINT"
        connection.execute(f"CREATE OR REPLACE TABLE prepared AS {_select(source, chosen, sort_key)}")
        measured = [name for name in metric.NAMES if name in chosen]
        kept = ", ".join(["node", "at_us", "boot", "seq", "cpus", "memory_bytes", "place", *measured])
        (row,) = connection.execute("SELECT count(*) = count(place) FROM prepared").fetchall()
        exact = bool(row[0])
        order = "place, at_us" if exact else "at_us, node"
        connection.execute(
            f"COPY (SELECT {kept} FROM prepared WHERE fault IS NULL ORDER BY {order}) "  # noqa: S608 # our names
            f"TO {_quoted(str(target))} (FORMAT parquet)"
        )
    except duckdb.Error as error:
        raise Unmapped(f"{files[0]}: {str(error).splitlines()[0]}") from error
    (totals,) = connection.execute(
        "SELECT count(*) FILTER (fault IS NULL), coalesce(min(at_us) FILTER (fault IS NULL), 0), "
        "coalesce(max(at_us) FILTER (fault IS NULL), 0), count(fault) FROM prepared"
    ).fetchall()
    faulty_rows = connection.execute(
        "SELECT file, row, fault, value FROM prepared WHERE fault IS NOT NULL ORDER BY file, row LIMIT ?", [_EXAMPLES]
    ).fetchall()
    connection.execute("DROP TABLE prepared")
    faults = [Fault(str(file), int(row), str(fault), str(value or "")) for file, row, fault, value in faulty_rows]
    return Prepared(target, totals[0], measured, exact, totals[1], totals[2], totals[3], faults)


def _check_metrics(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], chosen: Mapping[str, Column]) -> None:
    """Check that each file has samples; rows of another table would count as samples in which all is missing."""
    columns = [column.source for name, column in chosen.items() if name in metric.NAMES]
    for file in files:
        described = connection.execute(f"DESCRIBE SELECT * FROM {_source([file])}").fetchall()  # noqa: S608 # as above
        available = {str(row[0]) for row in described}
        if not available.intersection(columns):
            raise Unmapped(f"{file}: has no column of a metric ({', '.join(columns)}); leave that file out")
        if available >= _OF_PODS:  # some of whose columns are named as metrics are
            raise Unmapped(f"{file}: has usage of pods, and no samples of nodes; leave that file out")


def _source(files: Sequence[Path]) -> str:
    listed = "[" + ", ".join(_quoted(str(path)) for path in files) + "]"
    if all(path.name.removesuffix(".gz").endswith(".csv") for path in files):
        form = "all_varchar = true, header = true, null_padding = true, union_by_name = true"
        return f"read_csv({listed}, {form}, filename = '{FILE}')"
    return f"read_parquet({listed}, union_by_name = true, hive_partitioning = false, filename = '{FILE}')"


def position(streams: Sequence[str]) -> str:
    """Return the SQL expression of a row's position: the index of its stream, then its sequence in the stream."""
    listed = ", ".join(_quoted(stream) for stream in streams)
    created = f"regexp_extract({FILE}, '([^/]*?)-[0-9]+-[0-9]+[.]parquet$', 1)"
    return f"(list_position([{listed}], {created})::BIGINT * {_STREAM} + sequence)"


def _select(source: str, chosen: Mapping[str, Column], sort_key: str) -> str:
    """Return the statement that reads the columns, and for each row its first unusable column with the value."""
    bounds = {each.name: each.high for each in metric.METRICS} | _MAXIMUM
    values = {name: _number(column) for name, column in chosen.items() if name in metric.NAMES}
    at_us = _time(chosen)
    sizes = {
        name: f"TRY_CAST({_number(chosen[name])} AS BIGINT)" if name in chosen else "NULL::BIGINT"
        for name in ("seq", "cpus", "memory_bytes")
    }
    timed = next(column for name, column in chosen.items() if name in mapping.TIMES)
    node = f"nullif({_text(chosen['node'])}, '')"
    checks = [
        (timed.source, f"{at_us} IS NULL OR {at_us} < 0 OR {at_us} > {_FUTURE_US}"),
        (chosen["node"].source, f"{node} IS NULL OR NOT regexp_full_match({node}, {_quoted(_NODE)})"),
    ]
    for name in (*sizes, *values):
        if name not in chosen:
            continue
        number, text = _number(chosen[name]), _text(chosen[name])
        high = bounds.get(name, 2.0**53 - 1)
        wrong = f"({number} IS NULL AND nullif({text}, '') IS NOT NULL) OR {number} < 0 OR {number} > {high!r}"
        checks.append((chosen[name].source, f"{wrong} OR isnan({number})"))
    fault = " ".join(f"WHEN {check} THEN {_quoted(name)}" for name, check in checks)
    value = " ".join(f"WHEN {check} THEN {_text(Column('', name))}" for name, check in checks)
    columns = [
        f"{node} AS node",
        f"{at_us} AS at_us",
        f"{_text(chosen['boot'])} AS boot" if "boot" in chosen else "NULL::VARCHAR AS boot",
        *(f"{expression} AS {name}" for name, expression in sizes.items()),
        *(f"{expression} AS {name}" for name, expression in values.items()),
        f"CASE {fault} END AS fault",
        f"CASE {value} END AS value",
        f"{sort_key} AS place",
        f"{FILE} AS file",
        f"row_number() OVER () - min({_NUMBER}) OVER (PARTITION BY {FILE}) + 1 AS row",
    ]
    return (
        f"SELECT {', '.join(columns)} FROM "  # noqa: S608 # quoted names, and numbers
        f"(SELECT *, row_number() OVER () AS {_NUMBER} FROM {source})"
    )


def _time(chosen: Mapping[str, Column]) -> str:
    """Return the SQL expression of a row's time in microseconds."""
    if "at_us" in chosen:
        return f"TRY_CAST(round({_number(chosen['at_us'])}) AS BIGINT)"
    if "seconds" in chosen:
        return f"TRY_CAST(round({_number(chosen['seconds'])} * 1000000) AS BIGINT)"
    return f"epoch_us(TRY_CAST({_name(chosen['time'].source)} AS TIMESTAMPTZ))"


def _number(column: Column) -> str:
    # A time in microseconds is exact as an integer, and not always as a float.
    kind = "DOUBLE" if column.name != "at_us" or column.factor != 1 else "DECIMAL(38, 3)"
    factor = f" * {column.factor!r}" if column.factor != 1 else ""
    return f"(TRY_CAST({_name(column.source)} AS {kind}){factor})"


def _text(column: Column) -> str:
    return f"CAST({_name(column.source)} AS VARCHAR)"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
