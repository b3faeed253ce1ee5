"""Short spikes vanish, steps stay, gaps are skipped, and cutting the stream changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from processors.smoothing import dynamic_ema, running_median

Array = NDArray[np.float64]

STREAMS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(1, 16), st.integers(1, 2)),
    elements=st.one_of(st.just(np.nan), st.sampled_from([0.0, -0.0, 0.25, 1.0]), st.floats(0, 1)),
)


def column(*values: float) -> Array:
    return np.array(values).reshape(1, -1, 1)


def median_of_last(stream: Array, size: int) -> Array:
    """Say slowly what the running median is."""
    out = np.full_like(stream, np.nan)
    for node, at, metric in np.ndindex(*stream.shape):
        present = [value for value in stream[node, max(0, at - size + 1) : at + 1, metric] if not np.isnan(value)]
        if present:
            out[node, at, metric] = np.median(present)
    return out


@given(STREAMS, st.sampled_from([3, 4, 5, 7]))
@settings(deadline=None, max_examples=80, derandomize=True)
def test_running_median_is_the_median_of_the_known_among_the_last_samples(stream: Array, size: int) -> None:
    smoothed = running_median.update(
        running_median.init(stream.shape[0], stream.shape[2], size=size), stream, size=size
    )[1]
    np.testing.assert_array_equal(smoothed, median_of_last(stream, size))
    assert not np.signbit(smoothed[~np.isnan(smoothed)]).any()


def test_the_selection_network_and_sorting_give_identical_bits() -> None:
    rng = np.random.default_rng(1)
    series = np.round(rng.random((70, 26, 14)), 1) + np.where(rng.random((70, 26, 14)) < 0.5, rng.random(14), 0)
    windows = np.lib.stride_tricks.sliding_window_view(series, 7, axis=1)
    network = running_median._median_of_seven(series)
    assert np.array_equal(network, running_median._median_of_known(windows))
    assert np.array_equal(network, np.median(windows, axis=-1))


@given(STREAMS, st.lists(st.integers(1, 5), max_size=16))
@settings(deadline=None, max_examples=60, derandomize=True)
def test_cutting_a_stream_into_calls_changes_no_bit_of_it(stream: Array, lengths: list[int]) -> None:
    nodes, samples, metrics = stream.shape
    cuts = [cut for cut in np.cumsum(lengths) if cut < samples]
    median, average = running_median.init(nodes, metrics, size=7), dynamic_ema.init(nodes, metrics)
    whole = running_median.update(median, stream, size=7), dynamic_ema.update(average, stream, step=0.1)
    parts: tuple[list[Array], list[Array]] = [], []
    for part in np.split(stream, cuts, axis=1):
        median, smoothed = running_median.update(median, part, size=7)
        parts[0].append(smoothed)
        average, smoothed = dynamic_ema.update(average, part, step=0.1)
        parts[1].append(smoothed)
    for (_, expected), pieces in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(np.concatenate(pieces, axis=1), expected)


def test_a_pulse_of_three_samples_leaves_the_median_untouched_and_a_step_is_followed_at_its_fourth() -> None:
    state, _ = running_median.update(running_median.init(1, 1, size=7), np.full((1, 10, 1), 0.2), size=7)
    pulse = column(0.8, 0.8, 0.8, *[0.2] * 10)
    assert np.array_equal(running_median.update(state, pulse, size=7)[1], np.full((1, 13, 1), 0.2))
    step = running_median.update(state, np.full((1, 5, 1), 0.8), size=7)[1]
    assert np.array_equal(step, column(0.2, 0.2, 0.2, 0.8, 0.8))


def test_the_median_leaves_its_input_alone_and_keeps_no_view_of_it() -> None:
    samples = np.random.default_rng(2).random((3, 10, 2))
    before = samples.copy()
    state, _ = running_median.update(running_median.init(3, 2, size=7), samples, size=7)
    assert np.array_equal(samples, before)
    samples[:] = -1
    assert (state.window >= 0).all()


def test_a_window_of_another_size_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"size is 5 samples, .* holds 6"):
        running_median.update(running_median.init(1, 1, size=7), np.zeros((1, 1, 1)), size=5)


@pytest.mark.parametrize("step", [0.05, 0.1])
@pytest.mark.parametrize(("seconds", "leak"), [(0.2, 0.05), (0.3, 0.07)])
def test_the_average_lets_little_of_a_short_pulse_through(step: float, seconds: float, leak: float) -> None:
    state, _ = dynamic_ema.update(dynamic_ema.init(1, 1), np.full((1, 10, 1), 0.2), step=step)
    pulse = column(*[0.8] * round(seconds / step), *[0.2] * 20)
    smoothed = dynamic_ema.update(state, pulse, step=step)[1]
    assert smoothed.max() - 0.2 < leak * 0.6


@pytest.mark.parametrize("step", [0.05, 0.1, 0.2])
@pytest.mark.parametrize(("low", "high"), [(0.1, 0.9), (0.9, 0.1)])
def test_the_average_follows_nine_tenths_of_a_step_within_a_second(step: float, low: float, high: float) -> None:
    state, _ = dynamic_ema.update(dynamic_ema.init(1, 1), np.full((1, 10, 1), low), step=step)
    smoothed = dynamic_ema.update(state, np.full((1, round(1 / step), 1), high), step=step)[1]
    assert abs(smoothed[0, -1, 0] - high) <= 0.1 * abs(high - low)


def test_the_average_begins_at_the_first_known_sample_and_holds_its_level_through_gaps() -> None:
    nan = np.nan
    smoothed = dynamic_ema.update(dynamic_ema.init(1, 1), column(nan, 0.5, nan, nan, 0.5), step=0.1)[1]
    np.testing.assert_array_equal(smoothed, column(nan, 0.5, 0.5, 0.5, 0.5))


def test_a_gap_neither_hastens_nor_resets_the_switch_to_the_fast_gain() -> None:
    state, _ = dynamic_ema.update(dynamic_ema.init(1, 1), column(0.2), step=0.1)
    plain = dynamic_ema.update(state, column(0.8, 0.8, 0.8, 0.8), step=0.1)[0]
    gappy = dynamic_ema.update(state, column(0.8, 0.8, np.nan, np.nan, 0.8, 0.8), step=0.1)[0]
    assert np.array_equal(plain.level, gappy.level)
    assert np.array_equal(plain.run, gappy.run)


@pytest.mark.parametrize("other", [0.2, 0.1])
def test_a_sample_at_or_beyond_the_level_starts_the_wait_again(other: float) -> None:
    state, _ = dynamic_ema.update(dynamic_ema.init(1, 1), column(0.2), step=0.1)
    state = state._replace(run=np.full((1, 1), 3.0))
    smoothed = dynamic_ema.update(state, column(other, 0.8), step=0.1)[1]
    assert smoothed[0, 1, 0] < 0.22


def test_every_node_may_have_its_own_time_between_samples() -> None:
    samples = np.random.default_rng(3).random((2, 10, 3))
    both = dynamic_ema.update(dynamic_ema.init(2, 3), samples, step=np.array([0.1, 0.05]))[1]
    for node, step in enumerate((0.1, 0.05)):
        alone = dynamic_ema.update(dynamic_ema.init(1, 3), samples[node : node + 1], step=step)[1]
        assert np.array_equal(both[node : node + 1], alone)


@pytest.mark.parametrize("groups", [2, 5, 37, 150])
def test_grouping_nodes_never_changes_a_bit_of_any_smoothed_sample(groups: int) -> None:
    rng = np.random.default_rng(groups)
    stream = rng.random((150, 30, 3))
    stream[rng.random(stream.shape) < 0.01] = np.nan
    for size in (5, 7):
        whole = running_median.update(running_median.init(150, 3, size=size), stream, size=size)[1]
        for rows in np.array_split(rng.permutation(150), groups):
            alone = running_median.update(running_median.init(len(rows), 3, size=size), stream[rows], size=size)[1]
            np.testing.assert_array_equal(alone, whole[rows])
    whole = dynamic_ema.update(dynamic_ema.init(150, 3), stream, step=0.1)[1]
    for rows in np.array_split(rng.permutation(150), groups):
        alone = dynamic_ema.update(dynamic_ema.init(len(rows), 3), stream[rows], step=0.1)[1]
        np.testing.assert_array_equal(alone, whole[rows])
