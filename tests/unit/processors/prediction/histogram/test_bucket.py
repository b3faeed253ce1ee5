"""Buckets of histograms: where they start, and which values fall into them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.prediction.histogram import bucket

CORES = bucket.KOORDINATOR_CPU


def test_exponential_buckets_start_where_the_peers_tests_say() -> None:
    options = bucket.exponential(500, 40, 1.5, 1e-4)
    assert options.starts.tolist() == [0, 40, 100, 190, 325, 527.5]
    assert options.find([-1, 39.99, 40, 100, 900]).tolist() == [0, 0, 1, 2, 5]


def test_linear_buckets_start_where_the_peers_tests_say() -> None:
    options = bucket.linear(5, 0.3, 1e-15)
    assert options.count == 18
    assert options.starts[17] == pytest.approx(5.1, rel=1e-15)
    assert options.find([-1, 0, 1.3, 100]).tolist() == [0, 0, 4, 17]


def test_buckets_of_the_peers_are_as_many_as_theirs() -> None:
    result = [options.count for options in (CORES, bucket.KOORDINATOR_MEMORY, bucket.VPA_CPU, bucket.VPA_MEMORY)]
    assert result == [158, 205, 176, 176]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0, 1.05, 1e-4), "maximum"),
        ((1.0, math.nan, 1.05, 1e-4), "first"),
        ((1.0, 1.0, 1.0, 1e-4), "ratio"),
        ((1.0, 1.0, 1.05, -1.0), "epsilon"),
        ((1e140, 1e-140, 1.0001, 1e-4), "too many"),
    ],
)
def test_buckets_that_cannot_be_are_refused_by_name(arguments: tuple[float, float, float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bucket.exponential(*arguments)


@given(st.floats(0, 1e300))
def test_a_value_is_never_above_the_end_of_its_bucket(value: float) -> None:
    number = int(CORES.find(value))
    assert number == CORES.count - 1 or value <= CORES.ends[number] * (1 + 1e-12)
    assert value >= CORES.starts[number] * (1 - 1e-12)
