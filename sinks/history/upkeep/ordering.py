"""Rows in the order of node and time, sorted a few nodes at a time.

An hour of 300 nodes has more than twenty million rows of pods. To sort them all together takes more memory than a merge
may have, and what is spilled has the size of the rows, more than twenty times that of their files. So the nodes are
divided into ranges whose rows fit into memory. Each range is sorted into a file of its own, and a view reads one
after another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from sinks.history import layout

_ROWS = 300_000  # of one range; one node may have more
FAST = "COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 122880"  # of files that are read once more and removed


@contextmanager
def ordered(connection: duckdb.DuckDBPyConnection, rows: duckdb.DuckDBPyRelation, path: Path) -> Iterator[str]:
    """Make the view `files` of rows for the duration of a `with` block; yields the clause that puts it in order.

    Args:
        connection: Connection of the rows.
        rows: They have `at_us`, and `node` unless they are of no node.
        path: Files for ranges are made beside it and removed.

    Raises:
        OSError, duckdb.Error: A file cannot be written.
    """
    if "node" not in rows.columns:
        rows.create_view("files")
        yield "ORDER BY at_us"
        return
    rows.create_view("unordered")
    ranges = _ranges(connection)
    if len(ranges) < 2:
        rows.create_view("files")
        yield "ORDER BY node, at_us"
        return
    parts = [layout.hidden(path.with_name(f"{number}-{path.name}")) for number in range(len(ranges))]
    try:
        for part, (first, last) in zip(parts, ranges, strict=True):
            wanted = f"node BETWEEN {layout.quoted(first)} AND {layout.quoted(last)}"
            if part is parts[-1]:
                wanted += " OR node IS NULL"  # which a sort puts last
            query = f"SELECT * FROM unordered WHERE {wanted} ORDER BY node, at_us"  # noqa: S608 # nodes are quoted
            connection.execute(f"COPY ({query}) TO {layout.quoted(str(part))} (FORMAT parquet, {FAST})")
        names = [layout.literal(part) for part in parts]
        connection.read_parquet(names, hive_partitioning=False).create_view("files")
        yield ""
    finally:
        for part in parts:
            part.unlink(missing_ok=True)


def _ranges(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """Divide the nodes of the view `unordered` into ranges; return the first and the last node of each, in order."""
    query = "SELECT node, count(*) FROM unordered WHERE node IS NOT NULL GROUP BY node ORDER BY node"
    ranges: list[tuple[str, str]] = []
    rows = 0
    for node, count in connection.execute(query).fetchall():
        if ranges and rows + count <= _ROWS:
            ranges[-1], rows = (ranges[-1][0], node), rows + count
        else:
            ranges.append((node, node))
            rows = count
    return ranges
