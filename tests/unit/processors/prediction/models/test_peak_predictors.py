"""How high usage will rise, by each predictor: worked out by hand, and from all samples at once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.prediction import moments
from processors.prediction.models import borg_default, n_sigma, pods_n_sigma, resource_central
from processors.prediction.tier import pod_sum
from processors.rows import table

Array = NDArray[np.float64]
NAN = np.nan
SECOND = 1_000_000
HOUR = 3600 * SECOND
HALF_LIFE = np.array([43200.0, 86400.0])
often = settings(deadline=None, max_examples=60, derandomize=True)


# N sigma


def recomputed(usage: Array, at_us: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Return weight, mean and deviation (resources,) of all samples of a row (samples, resources) at once."""
    weight = np.exp2(-(at_us.max() - at_us)[:, np.newaxis] / 1e6 / HALF_LIFE)
    weight = np.where(np.isnan(usage), 0.0, weight)
    total = weight.sum(axis=0)
    mean = (weight * np.nan_to_num(usage)).sum(axis=0) / total
    return total, mean, ((weight * (np.nan_to_num(usage) - mean) ** 2).sum(axis=0) / total) ** 0.5


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@often
def test_the_stream_is_the_weighted_mean_and_deviation_of_every_prefix_late_samples_included(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, samples = 3, 40
    usage = rng.gamma(2.0, 3.0, (samples, rows, 2)) + 1000 * rng.random()
    usage[rng.random(usage.shape) < 0.1] = NAN
    usage[0] = 1.0
    times = np.cumsum(rng.integers(1, 4 * HOUR, (samples, rows)), axis=0) + 1_700_000_000 * SECOND
    times -= np.where(rng.random(times.shape) < 0.2, 30 * HOUR, 0)
    heard = np.asarray(~np.isnan(usage).all(axis=2))
    state = moments.init(rows, 2)
    for count in range(1, samples + 1):
        state = moments.update(state, usage[count - 1], times[count - 1], half_life_seconds=HALF_LIFE)
        for row in range(rows):
            seen = heard[:count, row]
            weight, mean, deviation = recomputed(usage[:count, row][seen], times[:count, row][seen])
            np.testing.assert_allclose(state.weight[row], weight, rtol=1e-12)
            np.testing.assert_allclose(state.mean[row], mean, rtol=1e-12)
            np.testing.assert_allclose(moments.deviation(state)[row], deviation, rtol=1e-9, atol=1e-9)


def test_two_samples_a_half_life_apart_weigh_one_to_two() -> None:
    """Weights 1/2 and 1 of 3 and 6: mean 7.5/1.5 = 5, variance (0.5 * 4 + 1)/1.5 = 2, so with N = 3 5 + 3 sqrt(2)."""
    state = moments.init(1, 1)
    for value, at in ((3.0, 0), (6.0, HOUR)):
        state = moments.update(state, np.array([[value]]), np.array([at + HOUR]), half_life_seconds=3600)
    assert state.weight[0, 0] == 1.5
    assert n_sigma.peak(state, n=3)[0, 0] == pytest.approx(5 + 3 * 2**0.5, rel=1e-15)
    assert moments.span_seconds(state)[0] == 3600


def test_the_order_of_samples_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    usage, times = rng.random((50, 1, 2)), np.arange(50)[:, np.newaxis] * HOUR + 1
    forward, mixed = moments.init(1, 2), moments.init(1, 2)
    for index, other in enumerate(rng.permutation(50)):
        forward = moments.update(forward, usage[index], times[index], half_life_seconds=HALF_LIFE)
        mixed = moments.update(mixed, usage[other], times[other], half_life_seconds=HALF_LIFE)
    np.testing.assert_allclose(n_sigma.peak(forward, n=5), n_sigma.peak(mixed, n=5), rtol=1e-12)
    assert mixed.at_us == forward.at_us
    assert mixed.first_us == forward.first_us


def test_a_clock_that_was_set_back_begins_again_instead_of_learning_nothing() -> None:
    far = np.array([10 * 365 * 24 * HOUR])
    state = moments.update(moments.init(1, 2), np.array([[9.0, 9.0]]), far, half_life_seconds=HALF_LIFE)
    now = far - 11 * 24 * HOUR  # eleven of the longer half-lives
    state = moments.update(state, np.array([[1.0, NAN]]), now, half_life_seconds=HALF_LIFE)
    np.testing.assert_array_equal(n_sigma.peak(state, n=3), [[1.0, NAN]])
    assert state.at_us == now
    state = moments.update(state, np.array([[3.0, 4.0]]), now, half_life_seconds=HALF_LIFE)
    np.testing.assert_array_equal(state.mean, [[2.0, 4.0]])


def test_nothing_seen_is_not_known_and_a_missing_sample_changes_nothing() -> None:
    state = moments.init(2, 2)
    nothing = np.full((2, 2), NAN)
    assert np.isnan(n_sigma.peak(state, n=3)).all()
    state = moments.update(state, np.ones((2, 2)), np.full(2, HOUR), half_life_seconds=HALF_LIFE)
    after = moments.update(state, nothing, np.full(2, 90 * HOUR), half_life_seconds=HALF_LIFE)
    for left, right in zip(state, after, strict=True):
        np.testing.assert_array_equal(left, right)
    infinite = moments.update(state, np.full((2, 2), math.inf), np.full(2, 2 * HOUR), half_life_seconds=HALF_LIFE)
    assert np.array_equal(infinite.mean, state.mean)


def test_negative_usage_counts_as_none() -> None:
    state = moments.update(moments.init(1, 1), np.array([[-5.0]]), np.array([HOUR]), half_life_seconds=3600)
    assert n_sigma.peak(state, n=1)[0, 0] == 0


def test_a_resource_that_is_silent_for_thousands_of_half_lives_is_forgotten() -> None:
    state = moments.update(moments.init(1, 2), np.array([[1e15, 2.0]]), np.array([1]), half_life_seconds=1.0)
    state = moments.update(state, np.array([[0.1, NAN]]), np.array([10_000 * SECOND]), half_life_seconds=1.0)
    np.testing.assert_array_equal(n_sigma.peak(state, n=3), [[0.1, NAN]])


def test_a_tiny_spread_on_a_large_mean_is_not_lost() -> None:
    """Usage of 1 TiB that moves by one byte either way has a deviation of one byte."""
    state = moments.init(1, 1)
    for index in range(1000):
        value = 2.0**40 + (-1) ** index
        state = moments.update(state, np.array([[value]]), np.array([index + 1]), half_life_seconds=3600)
    assert moments.deviation(state)[0, 0] == pytest.approx(1.0, rel=1e-4)


def test_a_half_life_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="half_life_seconds is 0: it must be above 0 s"):
        moments.update(moments.init(1, 1), np.ones((1, 1)), np.array([1]), half_life_seconds=0)


def learned(rows: int, seed: int) -> moments.State:
    rng = np.random.default_rng(seed)
    state = moments.init(rows, 2)
    for index in range(20):
        state = moments.update(
            state, rng.random((rows, 2)), np.full(rows, (index + 1) * HOUR), half_life_seconds=HALF_LIFE
        )
    return state


def test_rows_do_not_know_of_each_other_and_a_state_survives_its_arrays() -> None:
    state = learned(7, 1)
    assert all(map(np.array_equal, table.restore(moments.init(0, 2), table.flatten(state)), state))
    half = table.take(state, np.array([2, 5]))
    usage, times = np.random.default_rng(2).random((7, 2)), np.full(7, 30 * HOUR)
    whole = moments.update(state, usage, times, half_life_seconds=HALF_LIFE)
    part = moments.update(half, usage[[2, 5]], times[[2, 5]], half_life_seconds=HALF_LIFE)
    assert all(map(np.array_equal, table.take(whole, np.array([2, 5])), part))


def test_the_peak_of_pods_is_the_sum_of_their_own() -> None:
    pods = learned(5, 5)
    row = np.array([0, 0, 0, 0, -1])
    by_pods = pods_n_sigma.peak(pods, np.ones((5, 2)), row, 2, n=3)
    np.testing.assert_allclose(by_pods[0], n_sigma.peak(pods, n=3)[:4].sum(axis=0), rtol=1e-14)
    assert (by_pods[1] == 0).all()


def test_a_pod_of_which_nothing_was_seen_counts_what_it_asked_for() -> None:
    request = np.array([[2.0, 8.0], [-1.0, NAN]])
    result = pods_n_sigma.peak(moments.init(2, 2), request, np.array([0, 0]), 1, n=3)
    np.testing.assert_array_equal(result, [[2.0, NAN]])


# Borg-default and Resource Central


def test_borg_default_divides_requests_by_its_rate() -> None:
    request = np.array([[1.1, 22.0], [3.3, 0.0], [-7.0, 11.0], [5.0, NAN]])
    result = borg_default.peak(request, np.array([0, 0, 0, 1]), 3)
    np.testing.assert_allclose(result, np.array([[4.0, 30.0], [5 / 1.1, NAN], [0, 0]]), rtol=1e-15)
    assert borg_default.peak(request[:1], np.array([0]), 1, overcommit=2.0)[0, 1] == 11
    with pytest.raises(ValueError, match="overcommit is 0"):
        borg_default.peak(request, np.array([0, 0, 0, 1]), 3, overcommit=0)


def test_resource_central_adds_percentiles_and_the_requests_of_the_unknown() -> None:
    percentile = np.array([[0.5, 3.0], [NAN, 2.0], [-1.0, NAN], [9.0, 9.0]])
    request = np.array([[1.0, 4.0], [2.0, 4.0], [3.0, 4.0], [1.0, 1.0]])
    result = resource_central.peak(percentile, request, np.array([0, 0, 0, 1]), 2)
    np.testing.assert_array_equal(result, [[0.5 + 2.0 + 0.0, 3.0 + 2.0 + 4.0], [9.0, 9.0]])


def test_a_pod_of_a_row_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="row 2 of a pod: there are 2 rows"):
        pod_sum.add(np.ones((1, 2)), np.array([2]), 2)


def test_no_pods_use_nothing() -> None:
    no_pods = np.zeros((0, 2))
    none = np.zeros(0, dtype=np.intp)
    for result in (borg_default.peak(no_pods, none, 2), resource_central.peak(no_pods, no_pods, none, 2)):
        np.testing.assert_array_equal(result, np.zeros((2, 2)))
