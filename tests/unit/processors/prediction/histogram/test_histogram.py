"""Decayed histograms: numbers worked out elsewhere, one sample after another against many at once, and laws."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from processors.prediction.histogram import bucket, histogram
from processors.rows import table
from tests.unit.processors.prediction.histogram.filled import BEGAN, CORES, HOUR, fill, read, same, samples

Array = NDArray[np.float64]
WHOLE = bucket.linear(10, 1, 1e-15)
TENTHS = bucket.linear(1, 0.1, 1e-15)
both = pytest.mark.parametrize("compat", [False, True])


@both
def test_percentiles_are_the_upper_ends_of_buckets(compat: bool) -> None:
    state = fill([(value, value, 0) for value in (1, 2, 3, 4)], WHOLE, None, compat=compat)
    tenths = [share / 10 for share in range(11)]
    assert read(state, tenths, WHOLE, compat=compat) == [2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 5]


@both
def test_fractions_outside_of_0_to_1_read_the_ends(compat: bool) -> None:
    state = fill([(0.1, 0.1, 0), (0.2, 0.2, 0)], TENTHS, None, compat=compat)
    assert read(state, [-0.1, 1.1], TENTHS, compat=compat) == pytest.approx([0.2, 0.3])
    more = fill([(0.1, 0.1, 0), (0.2, 0.2, 0), (0, 0.1, 0), (1.0, 0.2, 0)], TENTHS, None, compat=compat)
    assert read(more, [-0.1, 1.1], TENTHS, compat=compat) == pytest.approx([0.1, 1.0])


@both
def test_a_sample_counts_half_after_each_half_life(compat: bool) -> None:
    samples = [(float(i), float(i), BEGAN + (i - 1) * HOUR) for i in range(1, 5)]
    state = fill(samples, WHOLE, HOUR, compat=compat)
    result = read(state, [0, 0.02, 0.03, 0.10, 0.11, 0.34, 0.35, 1], WHOLE, compat=compat)
    assert result == [2, 2, 3, 3, 4, 4, 5, 5]
    assert state.total[0] == 35.253872710265085
    assert state.reference[0] == 1234569600


@both
def test_a_heavy_old_sample_still_counts_after_twenty_half_lives(compat: bool) -> None:
    state = fill([(2, 1000, BEGAN), (1, 1, BEGAN + 20 * HOUR)], WHOLE, HOUR, compat=compat)
    assert read(state, [0.999, 1], WHOLE, compat=compat) == [2, 3]


@both
def test_what_is_a_hundred_half_lives_old_is_gone(compat: bool) -> None:
    state = fill([(2, 1, BEGAN), (1, 1, BEGAN + 101 * HOUR)], WHOLE, HOUR, compat=compat)
    assert read(state, [1], WHOLE, compat=compat) == [2]


def test_no_rows_are_rows_too() -> None:
    state = histogram.init(0, CORES)
    state = histogram.add(state, np.empty(0), 1.0, BEGAN, options=CORES, half_life_seconds=HOUR)
    assert histogram.percentile(state, [0.5, 0.9], options=CORES).shape == (0, 2)


def test_an_empty_histogram_reads_nothing_and_the_peers_read_0() -> None:
    state = histogram.init(2, CORES)
    assert np.isnan(histogram.percentile(state, [0, 0.5, 1], options=CORES)).all()
    assert (histogram.percentile(state, [0, 0.5, 1], options=CORES, compat=True) == 0).all()


def test_a_fraction_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="fractions"):
        histogram.percentile(histogram.init(1, CORES), [math.nan], options=CORES)


@pytest.mark.parametrize(
    ("at", "hours", "reference", "factor"),
    [
        (1700000000, 12, 1700006400, 0.9024080558007124),
        (1700000000, 24, 1700006400, 0.9499516070835989),
        (1700000000, 1, 1699999200, 1.1665290395761165),
        (1700028000, 12, 1700049600, 0.7071067811865475),
        (1700000000, 7, 1700010000, None),
        (1700000000, 168, 1699833600, None),
    ],
)
def test_references_are_multiples_of_the_half_life_since_the_year_1(
    at: int, hours: int, reference: int, factor: float | None
) -> None:
    state = fill([(1, 1, at)], CORES, hours * HOUR)
    assert state.reference[0] == reference
    assert factor is None or state.total[0] == factor


@pytest.mark.slow
@given(samples)
def test_rows_do_not_know_of_each_other(result: list[Any]) -> None:
    values, weights, at = (np.array(column, dtype=np.float64) for column in zip(*result, strict=True))
    state = histogram.init(len(result), CORES)
    together = histogram.add(state, values, weights, BEGAN + at, options=CORES, half_life_seconds=HOUR)
    for row, (value, weight, later) in enumerate(result):
        alone = fill([(value, weight, BEGAN + later)], CORES, HOUR)
        assert same(table.take(together, np.array([row])), alone)


def test_more_rows_than_a_chunk_read_as_each_alone() -> None:
    sizes = np.linspace(0.1, 900, 1300)
    state = histogram.init(len(sizes), CORES)
    for share in (0.5, 1.0, 0.2):
        state = histogram.add(state, sizes * share, 1.0, BEGAN, options=CORES, half_life_seconds=HOUR)
    together = histogram.percentile(state, [0.5, 1], options=CORES)
    for row in (0, 511, 512, 1299):
        assert read(table.take(state, np.array([row])), [0.5, 1], CORES) == together[row].tolist()


@both
@pytest.mark.parametrize(
    ("value", "weight", "at"),
    [
        (math.nan, 1.0, BEGAN),
        (math.inf, 1.0, BEGAN),
        (-math.inf, 1.0, BEGAN),
        (1.0, math.nan, BEGAN),
        (1.0, math.inf, BEGAN),
        (1.0, -1.0, BEGAN),
        (1.0, 1.0, math.nan),
        (1.0, 1.0, math.inf),
    ],
)
def test_what_is_no_sample_changes_nothing(value: float, weight: float, at: float, compat: bool) -> None:
    before = fill([(2, 1, BEGAN)], CORES, HOUR)
    given, keywords = np.array([value]), {"options": CORES, "half_life_seconds": HOUR, "compat": compat}
    assert same(histogram.add(before, given, weight, at, **keywords), before)  # type: ignore[arg-type]


def test_a_value_below_0_counts_as_0() -> None:
    assert same(fill([(-3, 1, BEGAN)], CORES, HOUR), fill([(0, 1, BEGAN)], CORES, HOUR))


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_half_life_that_cannot_be_is_refused(seconds: float) -> None:
    state = histogram.init(1, CORES)
    with pytest.raises(ValueError, match="half_life_seconds"):
        histogram.add(state, np.ones(1), 1.0, BEGAN, options=CORES, half_life_seconds=seconds)


@both
@pytest.mark.parametrize("at", [4e9, 1e18, 1e300])
def test_a_sample_from_the_future_pushes_the_past_out_and_nothing_breaks(at: float, compat: bool) -> None:
    samples = [(4.0, 1.0, float(BEGAN)), (2.0, 1.0, at), (8.0, 1.0, BEGAN + 60.0), (-1.0, 1.0, -at)]
    state = fill(samples, CORES, HOUR, compat=compat)
    assert read(state, [0, 0.5, 1], CORES, compat=compat) == [CORES.ends[CORES.find(2)]] * 3


def test_samples_out_of_order_count_as_in_order() -> None:
    dated = [(float(value), 1.0, BEGAN + value * HOUR) for value in range(1, 30)]
    late = histogram.percentile(fill(dated[::-1], CORES, HOUR), [0.2, 0.5, 0.9], options=CORES)
    assert np.array_equal(late, histogram.percentile(fill(dated, CORES, HOUR), [0.2, 0.5, 0.9], options=CORES))


def test_the_maximum_fades_and_that_of_the_peers_does_not() -> None:
    day = 24 * HOUR
    spike = [(50.0, 1.0, float(BEGAN))]
    for days, peak in ((6, CORES.ends[CORES.find(50)]), (8, CORES.ends[CORES.find(2)])):
        state = fill([*spike, *((2.0, 1.0, BEGAN + hours * HOUR) for hours in range(1, days * 24))], CORES, day / 2)
        assert read(state, [1], CORES) == [peak]
        assert read(state, [1], CORES, compat=True) == [CORES.ends[CORES.find(50)]]


def test_a_restored_histogram_never_reads_zero() -> None:
    state = histogram.init(1, CORES)
    state.weights[0, [1, 5]] = np.array([1.0, 10000.0]) / 10001.0
    state = state._replace(total=np.array([1.0]), low=np.array([1]), high=np.array([5]))
    assert read(state, [0, 0.5, 0.95, 1], CORES, compat=True) == [0, 0, 0, 0]
    assert read(state, [0, 0.5, 0.95, 1], CORES) == CORES.starts[[2, 6, 6, 6]].tolist()


def test_a_histogram_of_late_samples_alone_reads_them() -> None:
    state = fill([(1, 0.0, BEGAN), (4, 1.0, BEGAN - 40 * HOUR)], CORES, HOUR)
    assert state.weights.max() < CORES.epsilon
    assert read(state, [0, 0.5, 1], CORES) == [CORES.ends[CORES.find(4)]] * 3


def test_states_are_rows_that_can_be_taken_put_and_extended() -> None:
    state = histogram.init(3, CORES)
    state = histogram.add(state, np.array([1.0, 2.0, 3.0]), 1.0, BEGAN, options=CORES, half_life_seconds=HOUR)
    longer = table.extend(state, histogram.init(1, CORES))
    rows = np.array([3, 0])
    part = histogram.add(
        table.take(longer, rows), np.array([9.0, np.nan]), 1.0, BEGAN, options=CORES, half_life_seconds=HOUR
    )
    table.put(longer, rows, part)
    ends = CORES.ends[CORES.find([1.0, 2.0, 3.0, 9.0])]
    assert histogram.percentile(longer, [0.95], options=CORES)[:, 0].tolist() == ends.tolist()
    assert same(table.restore(histogram.init(0, CORES), table.flatten(longer)), longer)
