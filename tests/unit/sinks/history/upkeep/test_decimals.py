"""Numbers in merged files: the same as before, whatever they are."""

import math
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.history import layout
from sinks.history.upkeep import decimal, merge

ODD = [0.1 + 0.2, 1e-12, 1e300, -1e18, math.pi, math.nan, math.inf, None]


def exact(values: list[float | None]) -> dict[str, int]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (v DOUBLE)")
        connection.executemany("INSERT INTO t VALUES (?)", [[value] for value in values])
        decimals = decimal.exact(connection, "t")
        back = connection.execute(f"SELECT v::DOUBLE FROM ({decimal.query(connection, 't')})").fetchall()
    assert [repr(value + 0.0) if value is not None else None for value in values] == [
        repr(value) if value is not None else None for (value,) in back
    ]
    return decimals


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.none() | st.integers(-(10**9), 10**9), min_size=1), st.sampled_from([0, 2, 4, 5, 6, 9]))
def test_rounded_numbers_become_decimals_that_come_back_as_they_were(whole: list[int | None], digits: int) -> None:
    values = [None if each is None else round(each / 10**digits, digits) for each in whole]
    decimals = exact(values)
    assert decimals["v"] <= next(scale for scale in (0, 2, 3, 4, 6, 7, 9) if scale >= digits)


@pytest.mark.parametrize("odd", ODD)
def test_a_number_that_is_not_rounded_keeps_its_column_as_it_is(odd: float | None) -> None:
    assert exact([0.25, odd]) == ({} if odd is not None else {"v": 2})


def test_the_smallest_scale_that_is_exact_is_taken() -> None:
    values = (3.0, 0.31, 0.314, 0.3142, 0.31425, 0.314251, 0.3142512, 0.31425123)
    assert [exact([value])["v"] for value in values] == [0, 2, 3, 4, 6, 6, 7, 9]


def test_merged_files_are_smaller_and_read_as_floating_point_beside_the_stand_in(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = pl.DataFrame(
        {
            "at_us": np.arange(20_000),
            "ratio": np.round(np.cumsum(random.normal(0, 0.001, 20_000)) + 0.5, 4),
            "noise": random.random(20_000),
        }
    )
    names = [layout.Name("Z", first, first) for first in (1, 2)]
    for name, part in zip(names, (rows[:10_000], rows[10_000:]), strict=True):
        part.write_parquet(tmp_path / str(name), compression="zstd")
    pl.DataFrame(schema=rows.schema).write_parquet(tmp_path / "empty.parquet")
    merged = merge.merge(tmp_path, [(tmp_path / str(name), name) for name in names])
    assert merged is not None
    kinds = pl.read_parquet_schema(merged)
    assert kinds["noise"] == pl.Float64
    assert kinds["ratio"] == pl.Decimal(18, 4)
    with duckdb.connect() as connection:
        paths = [str(tmp_path / "empty.parquet"), str(merged)]
        back = connection.read_parquet(paths, union_by_name=True).order("at_us")
        types, back_rows = [str(kind) for kind in back.types], back.fetchall()
        sizes = connection.execute(
            "SELECT path_in_schema, total_compressed_size FROM parquet_metadata(?) ORDER BY 2", [str(merged)]
        ).fetchall()
    assert types == ["BIGINT", "DOUBLE", "DOUBLE"]
    assert back_rows == rows.rows()
    assert dict(sizes)["ratio"] < 2.5 * rows.height


def test_numbers_of_which_one_is_too_large_for_the_decimals_of_another_stay_as_they_are() -> None:
    assert exact([1e13, 0.25]) == {"v": 2}
    assert exact([1e13, 0.3142512]) == {}
