"""Availability in merged files: what is dropped is what ADR 48 says, and the table looks as before."""

import math
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import codec
from schemas.messages.estimate import Availability, ClassRoom
from sinks.history import layout, view
from sinks.history.tables import merged
from sinks.history.upkeep import compaction
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors.estimate import availability
from tests.support.processors.telemetry import NAMES, START

CREATED = "20261121T063000123456Z"
LATER_US = (START + 5 * 3600) * 1_000_000
ASKED = "SELECT * FROM availability ORDER BY at_us, node"


def room(available: float, pods: int = 1) -> ClassRoom:
    return ClassRoom(available=available, lower=available / 2, binding="cpu", pods=pods, cpu=0.01, memory=0.02)


def row(second: int, classes: dict[str, ClassRoom] | None, **changed: Any) -> Availability:
    return availability(at_us=(START + second) * 1_000_000, seq=second, classes=classes, **changed)


def write(folder: Path, rows: list[Availability], first: int = 1) -> None:
    """Write rows, each in a flush of its own."""
    view.create(folder)
    target = Writer(folder, "S", CREATED, 1)
    for sequence, each in enumerate(rows, first):
        append(target, NAMES.node("availability", each.node), sequence, codec.encode(each))
        target.flush()


def ask(folder: Path, sql: str = ASKED) -> list[tuple[Any, ...]]:
    with view.connect(folder) as connection:
        return connection.execute(sql).fetchall()


def stored(folder: Path) -> Path:
    (path,) = [path for path, _ in layout.files(folder)]
    return path


@pytest.mark.slow
def test_a_row_has_its_classes_in_their_order_however_many_they_are(tmp_path: Path) -> None:
    many = [{f"c{(index * 7) % count:02}": room(index) for index in range(count)} for count in (1, 2, 8, 9, 13)]
    listed: list[dict[str, ClassRoom] | None] = [None, {}, *many]
    write(tmp_path, [row(second, classes) for second, classes in enumerate(listed)])
    before = ask(tmp_path)
    assert sum(compaction.compact(tmp_path, LATER_US)) > 0
    assert ask(tmp_path) == before
    counts = ask(tmp_path, "SELECT len(classes) FROM availability ORDER BY at_us")
    assert [count for (count,) in counts] == [None, 0, 1, 2, 8, 9, 13]
    assert "class_8_class" in pl.read_parquet_schema(stored(tmp_path))


@pytest.mark.slow
def test_classes_have_no_more_columns_than_a_row_has_classes(tmp_path: Path) -> None:
    write(tmp_path, [row(1, {"a": room(1)}), row(2, {"a": room(1), "b": room(2)})])
    sum(compaction.compact(tmp_path, LATER_US))
    assert merged.places(list(pl.read_parquet_schema(stored(tmp_path)))) == 2
    assert ask(tmp_path, "SELECT class, available FROM classes ORDER BY ALL") == [("a", 1), ("a", 1), ("b", 2)]


@pytest.mark.slow
def test_rows_that_come_late_are_merged_with_merged_ones(tmp_path: Path) -> None:
    rows = [row(second, {name: room(second) for name in "abc"[: second % 4]} or None) for second in range(12)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    write(whole, rows)
    sum(compaction.compact(whole, LATER_US))
    for begin in (0, 4, 8):
        write(parts, rows[begin : begin + 4], first=begin + 1)
        sum(compaction.compact(parts, LATER_US))
    assert ask(parts) == ask(whole)
    assert len(ask(parts)) == 12


@pytest.mark.slow
def test_merged_files_are_read_without_the_file_that_has_no_rows(tmp_path: Path) -> None:
    """A folder that was copied without the files that have no rows."""
    write(tmp_path, [row(second, {"a": room(second), "b": room(1)}) for second in range(3)])
    sum(compaction.compact(tmp_path, LATER_US))
    before = ask(tmp_path, "SELECT node, at_us, classes, available, cpu_saturation FROM availability ORDER BY at_us")
    layout.stand_in(tmp_path, "availability").unlink()
    after = ask(tmp_path, "SELECT node, at_us, classes, available, usage_cpu FROM availability ORDER BY at_us")
    assert after == before


@pytest.mark.slow
def test_merged_rows_have_the_digits_that_are_stated(tmp_path: Path) -> None:
    numbers = {"available": 12.3456, "lower": 2.9999, "upper": 2.3, "signal": 0.0099, "cost": 0.123456789}
    shares = {"capacity": 0.912345, "prior": 0.123456, "explained": 0.99996, "gap": 0.000049, "cpu_used": 0.25}
    rooms = {"a": ClassRoom(available=1.9999, lower=0.0049, binding="cpu", pods=3, cpu=1.26e-7, memory=0.111111149)}
    usage, free = {"cpu": 0.123456, "memory": 0.5}, {"cpu": 0.2, "memory": 0.333333}
    limits = {"cpu": 3.9, "memory": 16.5 * 2**30}
    given_row = row(1, rooms, **numbers, **shares, usage=usage, free=free, limits=limits)
    write(tmp_path, [given_row, given_row.model_copy(update={"node": "m"})])
    asked = (
        f"SELECT {', '.join([*numbers, *shares])}, usage_cpu, cpu_saturation, usage_memory, usage_disk, free_cpu, "
        "free_memory, limit_cpu, limit_memory, classes FROM availability WHERE node = 'n'"
    )
    sum(compaction.compact(tmp_path, LATER_US))
    ((*results, classes),) = ask(tmp_path, asked)
    assert results == [
        *(12.34, 2.99, 2.3, 0.0, 0.1234568),
        *(0.9123, 0.123, 1.0, 0.0, 0.25),
        *(0.123, 0.123, 0.5, None, 0.2, 0.3333, 3.9, 16.5 * 2**30),
    ]
    expected = {"class": "a", "available": 1.99, "lower": 0.0, "binding": "cpu", "pods": 3}
    assert classes == [{**expected, "cpu": 1e-7, "memory": 0.1111111}]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1))
def test_whole_pods_and_everything_but_two_digits_are_as_before(ten_thousandths: list[int]) -> None:
    values = [whole / 10_000 for whole in ten_thousandths]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows AS SELECT unnest(?::DOUBLE[]) AS available", [values])
        selected = merged.stored(["available"], 0)
        for _ in range(2):  # what is merged again stays
            connection.execute(f"CREATE OR REPLACE TABLE rows AS SELECT {selected} FROM rows")
            kept = [value for (value,) in connection.execute("FROM rows").fetchall()]
            assert kept == [whole // 100 / 100 for whole in ten_thousandths]
    assert [math.floor(value) for value in kept] == [math.floor(value) for value in values]


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1), st.sampled_from([0.5, 0.9, 0.97, 0.999, 1.0]))
def test_the_same_rows_reach_a_threshold_of_three_digits(millionths: list[int], threshold: float) -> None:
    values = [whole / 10**6 for whole in millionths]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows AS SELECT unnest(?::DOUBLE[]) AS cpu_used", [values])
        kept = connection.execute(f"SELECT {merged.stored(['cpu_used'], 0)} FROM rows").fetchall()
    assert [value >= threshold for (value,) in kept] == [value >= threshold for value in values]


@pytest.mark.parametrize("odd", [1e9 + 0.123, 1e300, None])
def test_numbers_that_are_too_large_for_digits_stay_as_they_are(odd: float | None) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE rows (available DOUBLE)")
        connection.execute("INSERT INTO rows VALUES (?)", [odd])
        assert connection.execute(f"SELECT {merged.stored(['available'], 0)} FROM rows").fetchall() == [(odd,)]
