"""Histograms in a checkpoint: lossless, small, and refused when damaged."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.prediction.histogram import bucket, histogram, sparse
from processors.rows import table

HOUR = 3600
BEGAN = 1_234_567_890
CORES = bucket.KOORDINATOR_CPU


def same(left: histogram.State, right: histogram.State) -> bool:
    parts = zip(left, right, strict=True)
    return all(np.array_equal(mine, yours, equal_nan=True) and mine.dtype == yours.dtype for mine, yours in parts)


samples = st.lists(
    st.tuples(st.integers(0, 3), st.floats(0, 2000), st.floats(0, 10), st.integers(0, 200 * HOUR)), max_size=30
)


@pytest.mark.slow
@given(samples)
def test_a_dumped_histogram_is_the_same_to_the_last_bit(result: list[tuple[int, float, float, int]]) -> None:
    state = histogram.init(4, CORES)
    for row, value, weight, later in result:
        values = np.where(np.arange(4) == row, value, np.nan)
        state = histogram.add(state, values, weight, BEGAN + later, options=CORES, half_life_seconds=HOUR)
    assert same(sparse.load(sparse.dump(state, CORES), CORES), state)


def test_no_rows_are_kept_too() -> None:
    state = histogram.init(0, CORES)
    assert same(sparse.load(sparse.dump(state, CORES), CORES), state)


def test_a_dump_takes_ten_bytes_a_filled_bucket_and_thirty_a_row() -> None:
    state = histogram.init(100, CORES)
    for usage in range(1, 21):
        state = histogram.add(state, np.full(100, usage), 1.0, BEGAN, options=CORES, half_life_seconds=HOUR)
    filled = np.count_nonzero(state.weights)
    kept = sum(part.nbytes for part in sparse.dump(state, CORES).values())
    assert kept == 10 * filled + 30 * 100 + 24
    assert kept < sum(part.nbytes for part in table.flatten(state).values()) / 5


def dumped() -> dict[str, NDArray[Any]]:
    state = histogram.init(2, CORES)
    for values in ([1.0, 2.0], [5.0, np.nan]):
        state = histogram.add(state, np.array(values), 1.0, BEGAN, options=CORES, half_life_seconds=HOUR)
    return sparse.dump(state, CORES)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("buckets", 0, 158, "row 0 has 158 in buckets"),
        ("buckets", 1, 22, "row 0 has 22 in buckets, at 1"),
        ("weights", 2, np.nan, "row 1 has nan in weights"),
        ("weights", 2, -1.0, "row 1 has -1.0 in weights"),
        ("counts", 1, 2, "add up to 4"),
        ("total", 1, np.inf, "row 1 has inf in total"),
        ("newest", 0, -1.0, "row 0 has -1.0 in newest"),
        ("low", 1, 158, "row 1 has 158 in low"),
        ("high", 1, 999, "row 1 has 999 in high"),
        ("reference", 0, np.inf, "row 0 has inf in reference"),
        ("options", 0, 64.0, r"\(count, first, ratio\) \[64.0"),
    ],
)
def test_a_damaged_dump_is_refused_with_what_and_where(name: str, index: int, value: float, message: str) -> None:
    arrays = dumped()
    arrays[name][index] = value
    with pytest.raises(ValueError, match=message):
        sparse.load(arrays, CORES)


@pytest.mark.parametrize("name", list(dumped()))
def test_a_dump_with_an_array_missing_or_of_another_form_is_refused(name: str) -> None:
    arrays = dumped()
    for wrong in ({}, {name: arrays[name].astype("f4")}, {name: arrays[name][np.newaxis]}, {name: arrays[name][:-1]}):
        rest = {other: array for other, array in arrays.items() if other != name}
        with pytest.raises(ValueError, match="histogram"):
            sparse.load(rest | wrong, CORES)
