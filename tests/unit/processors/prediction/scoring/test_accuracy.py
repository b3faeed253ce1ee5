"""Predictions held against what usage then did: the peak oracle, and the running metric that agrees with it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.prediction.scoring import accuracy, oracle
from processors.rows import table

Array = NDArray[np.float64]

SECOND = 10**6
STEP = 300
PARAMS = accuracy.Params(horizon_seconds=4 * STEP, interval_seconds=STEP, half_life_seconds=np.inf, gap_seconds=900.0)


def feed(state: accuracy.State, usage: Array, peaks: Array, limit: Array, **changed: float) -> accuracy.State:
    """Give samples (samples, rows, resources) one after another, with peaks (samples, rows, models, resources)."""
    params = PARAMS._replace(**changed)
    for number, (used, predicted) in enumerate(zip(usage, peaks, strict=True)):
        at_us = np.full(used.shape[0], (1 + number) * STEP * SECOND)
        state = accuracy.update(state, used, predicted, limit, at_us, params=params)
    return state


def random_run(seed: int, samples: int, rows: int, models: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    usage = rng.gamma(2.0, 1.0, (samples, rows, 2))
    peaks = rng.gamma(4.0, 1.0, (samples, rows, models, 2))
    return usage, peaks, rng.uniform(5.0, 20.0, (rows, 2))


@given(st.lists(st.floats(0, 9) | st.just(np.nan), min_size=1, max_size=20), st.integers(1, 25))
def test_the_oracle_is_the_highest_of_the_samples_ahead_without_the_current_one(
    series: list[float], ahead: int
) -> None:
    result = oracle.peak(np.array([series]), horizon=ahead)[0]
    for number, value in enumerate(result):
        present = [later for later in series[number + 1 : number + 1 + ahead] if not np.isnan(later)]
        assert value == max(present) if present else np.isnan(value)


def test_a_horizon_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 sample, not 0"):
        oracle.peak(np.zeros((1, 3)), horizon=0)


def test_violation_severity_and_savings_are_as_defined() -> None:
    predicted, peaks, limit = np.array([6.0, 8.0, 9.0, np.nan]), np.array([8.0, 8.0, 0.0, 1.0]), np.full(4, 10.0)
    np.testing.assert_array_equal(oracle.violation(predicted, peaks), [1, 0, 0, np.nan])
    np.testing.assert_array_equal(oracle.severity(predicted, peaks), [0.25, 0, 0, np.nan])
    np.testing.assert_allclose(oracle.savings(predicted, limit), [0.4, 0.2, 0.1, np.nan], atol=1e-15)
    assert np.isnan(oracle.savings(np.array([1.0]), np.array([0.0])))[0]


def test_a_prediction_is_judged_when_its_horizon_has_passed_and_not_before() -> None:
    usage = np.array([5.0, 7.0, 8.0, 2.0, 6.0]).reshape(5, 1, 1)
    peaks = np.broadcast_to(np.array([6.0, 9.0]).reshape(2, 1), (5, 1, 2, 1))
    limit = np.full((1, 1), 10.0)
    early = feed(accuracy.init(1, 2, 1, 8), usage[:4], peaks[:4], limit)
    assert np.isnan(accuracy.summary(early).violation_rate).all()
    result = accuracy.summary(feed(accuracy.init(1, 2, 1, 8), usage, peaks, limit))
    np.testing.assert_array_equal(result.violation_rate[0, :, 0], [1, 0])
    np.testing.assert_allclose(result.severity[0, :, 0], [0.25, 0])
    np.testing.assert_allclose(result.savings[0, :, 0], [0.4, 0.1])
    np.testing.assert_array_equal(result.weight[0, :, 0], [1, 1])


@pytest.mark.slow
@given(st.integers(0, 2**31))
def test_the_running_metric_equals_the_oracle_on_the_whole_recording(seed: int) -> None:
    usage, peaks, limit = random_run(seed, samples=30, rows=3, models=2)
    result = accuracy.summary(feed(accuracy.init(3, 2, 2, 6), usage, peaks, limit))
    best = oracle.peak(usage.transpose(1, 2, 0), horizon=4)[:, None, :, :-4]
    shown = peaks.transpose(1, 2, 3, 0)[..., :-4]
    np.testing.assert_allclose(result.violation_rate, oracle.violation(shown, best).mean(axis=3), atol=1e-12)
    np.testing.assert_allclose(result.severity, oracle.severity(shown, best).mean(axis=3), atol=1e-12)
    np.testing.assert_allclose(result.savings, oracle.savings(shown, limit[:, None, :, None]).mean(axis=3), atol=1e-12)


@pytest.mark.slow
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_rows_may_be_batched_in_any_way(seed: int, cut: int) -> None:
    usage, peaks, limit = random_run(seed, samples=12, rows=5, models=2)
    whole = feed(accuracy.init(5, 2, 2, 6), usage, peaks, limit)
    parts = [
        feed(accuracy.init(len(limit[part]), 2, 2, 6), usage[:, part], peaks[:, part], limit[part])
        for part in (slice(None, cut), slice(cut, None))
    ]
    for name, result in table.flatten(table.extend(*parts)).items():
        np.testing.assert_array_equal(result, table.flatten(whole)[name])


def test_savings_are_shares_of_the_limit() -> None:
    usage = np.full((5, 2, 1), 1.0)
    peaks = np.broadcast_to(np.array([5.0, 5.0]).reshape(2, 1, 1), (5, 2, 1, 1))
    state = feed(accuracy.init(2, 1, 1, 8), usage, peaks, np.array([[10.0], [90.0]]))
    np.testing.assert_allclose(accuracy.summary(state).savings[:, 0, 0], [0.5, 85 / 90])


def test_what_was_judged_half_a_life_ago_counts_half() -> None:
    usage = np.array([5.0, 5.0, 9.0]).reshape(3, 1, 1)
    peaks = np.full((3, 1, 1, 1), 6.0)
    limit = np.full((1, 1), 10.0)
    result = accuracy.summary(
        feed(accuracy.init(1, 1, 1, 8), usage, peaks, limit, horizon_seconds=STEP, half_life_seconds=STEP)
    )
    assert result.weight[0, 0, 0] == pytest.approx(1.5)
    assert result.violation_rate[0, 0, 0] == pytest.approx(1 / 1.5)


def test_what_waits_through_a_gap_is_never_judged() -> None:
    state = accuracy.init(1, 1, 1, 8)
    limit, peaks = np.full((1, 1), 10.0), np.full((1, 1, 1), 6.0)
    for at in (300, 600, 600 + 1200, 600 + 1500):
        state = accuracy.update(state, np.full((1, 1), 5.0), peaks, limit, np.array([at * SECOND]), params=PARAMS)
    assert accuracy.summary(state).weight[0, 0, 0] == 0
    assert np.count_nonzero(state.waiting.born_us) == 2


def test_a_clock_that_goes_back_changes_nothing() -> None:
    usage, peaks, limit = random_run(1, samples=6, rows=2, models=1)
    before = feed(accuracy.init(2, 1, 2, 8), usage, peaks, limit)
    after = accuracy.update(before, usage[0], peaks[0], limit, before.at_us - SECOND, params=PARAMS)
    for name, result in table.flatten(after).items():
        np.testing.assert_array_equal(result, table.flatten(before)[name])


def test_a_model_that_says_nothing_is_not_judged() -> None:
    usage, peaks, limit = random_run(2, samples=10, rows=2, models=2)
    peaks[:, :, 1] = np.nan
    result = accuracy.summary(feed(accuracy.init(2, 2, 2, 8), usage, peaks, limit))
    assert (result.weight[:, 0] == 6).all()
    assert (result.weight[:, 1] == 0).all()
    assert np.isnan(result.violation_rate[:, 1]).all()


def test_with_too_few_slots_fewer_predictions_are_judged_and_each_as_it_should_be() -> None:
    usage, peaks, limit = random_run(3, samples=20, rows=1, models=1)
    result = accuracy.summary(feed(accuracy.init(1, 1, 2, 2), usage, peaks, limit))
    judged = [start for start in range(16) if start % 4 in {0, 1}]
    best = oracle.peak(usage.transpose(1, 2, 0), horizon=4)[0, :, judged].T
    assert (result.weight == len(judged)).all()
    rates = oracle.violation(peaks[judged, 0, 0].T, best).mean(axis=1)
    np.testing.assert_allclose(result.violation_rate[0, 0], rates, atol=1e-12)


def test_a_stored_state_goes_on_when_a_model_was_added_behind_the_others() -> None:
    usage, peaks, limit = random_run(3, 12, 4, 2)
    old = feed(accuracy.init(4, 2, 2, 3), usage, peaks, limit)
    arrays = accuracy.widen(table.flatten(old, "node."), "node.", 3)
    wide = table.restore(accuracy.init(0, 3, 2, 3), arrays, "node.")
    more = np.concatenate((peaks, 2 * peaks[:, :, :1]), axis=2)
    later = np.full(4, 100 * STEP * SECOND)
    before = accuracy.update(old, usage[0], peaks[0], limit, later, params=PARAMS._replace(gap_seconds=1e9))
    after = accuracy.update(wide, usage[0], more[0], limit, later, params=PARAMS._replace(gap_seconds=1e9))
    for figure, same in zip(accuracy.summary(after), accuracy.summary(before), strict=True):
        np.testing.assert_array_equal(figure[:, :2], same)
    assert (accuracy.summary(before).weight > 0).all()
    assert (accuracy.summary(after).weight[:, 2] == 0).all()
