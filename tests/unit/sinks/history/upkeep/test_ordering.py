"""Rows that are too many to be sorted at once are sorted range by range, and come out in the same order."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sinks.history.upkeep import ordering

# Nodes between which a range may end, in the order of bytes; one has a quote, and one stands for rows without a node.
NODES = ("", "Ä", "a", "b'c", "b*", "z")
ROWS = [(node, at_us, at_us * 7) for at_us in range(5) for node in (*reversed(NODES), None)]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connected:
        connected.execute("CREATE TABLE given (node VARCHAR, at_us BIGINT, value BIGINT)")
        connected.executemany("INSERT INTO given VALUES (?, ?, ?)", ROWS)
        yield connected


def in_order(connection: duckdb.DuckDBPyConnection, path: Path) -> tuple[str, list[tuple[str | None, int, int]]]:
    with ordering.ordered(connection, connection.table("given"), path) as order:
        return order, connection.execute(f"SELECT * FROM files {order}").fetchall()


@pytest.mark.parametrize("most", [1, 5, 11, 29])
def test_ranges_give_the_order_of_a_sort_and_leave_no_file(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(ordering, "_ROWS", most)
    order, rows = in_order(connection, tmp_path / "x.parquet")
    assert not order
    assert rows == connection.execute("SELECT * FROM given ORDER BY node, at_us").fetchall()
    assert len(rows) == len(ROWS)
    assert not list(tmp_path.iterdir())


def test_few_rows_are_sorted_at_once(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    order, rows = in_order(connection, tmp_path / "x.parquet")
    assert order == "ORDER BY node, at_us"
    assert len(rows) == len(ROWS)


def test_rows_of_no_node_are_in_the_order_of_time(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("ALTER TABLE given DROP node")
    with ordering.ordered(connection, connection.table("given"), tmp_path / "x.parquet") as order:
        times = [at_us for at_us, _ in connection.execute(f"SELECT * FROM files {order}").fetchall()]
    assert times == sorted(times)


def test_a_failure_leaves_no_file(
    tmp_path: Path, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "_ROWS", 1)
    with pytest.raises(OSError, match="full"), ordering.ordered(connection, connection.table("given"), tmp_path / "x"):
        raise OSError("full")
    assert not list(tmp_path.iterdir())
