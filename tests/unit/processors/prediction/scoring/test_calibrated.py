"""The predictor that states how often it is wrong: what it learns, and that its word holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.prediction.scoring import calibration, conformal, residuals
from processors.rows import table as arrays
from schemas.sections.prediction import Predict
from tests.support.processors.residual import DAY, noise, taught

Array = NDArray[np.float64]

SECOND = 10**6
STEP = 300
PARAMS = conformal.Params(interval_seconds=STEP)
Learned = tuple[conformal.State, residuals.Table]


def feed(usage: Array, *, params: conformal.Params = PARAMS, slots: int = DAY, start: int = 0) -> Learned:
    """Follow samples (samples, rows, resources), the first `start` seconds after midnight."""
    state = conformal.init(usage.shape[1], usage.shape[2], slots=slots)
    table = residuals.empty(usage.shape[2])
    for number, used in enumerate(usage):
        at_us = np.full(usage.shape[1], (86_400 + start + number * STEP) * SECOND)
        state, table = conformal.update(state, table, used, at_us, params=params)
    return state, table


def test_a_row_of_which_nothing_is_known_keeps_its_whole_limit() -> None:
    state, table = conformal.init(2, 1, slots=4), residuals.empty(1)
    assert (conformal.peak(state, residuals.quantile(table, 0.01), params=PARAMS) == 1).all()
    assert (residuals.stated(table, 0.01) == 1).all()


def test_a_row_keeps_its_whole_limit_while_nothing_was_learned_from_any_row() -> None:
    state, table = feed(noise(0, 10, 2))
    assert (conformal.peak(state, residuals.quantile(table, 0.01), params=PARAMS) == 1).all()


@given(st.integers(0, 2**31), st.floats(0.011, 0.95))
def test_the_quantile_is_that_of_what_was_seen_within_one_bin(seed: int, probability: float) -> None:
    values = np.random.default_rng(seed).normal(2.0, 1.0, 2000).clip(-4.9, 40.0)
    result = residuals.quantile(taught(values), probability)[0, 0]
    low, high = (
        np.quantile(values, 1 - probability, method="lower"),
        np.quantile(values, 1 - probability, method="higher"),
    )
    assert low - 0.1 <= result <= high + 0.1


@pytest.mark.parametrize("probability", [0.5, 0.05, 0.01, 0.002, 1e-6])
def test_one_time_of_day_reads_what_all_times_read_and_nothing_of_a_resource_of_which_nothing_was_learned(
    probability: float,
) -> None:
    rng = np.random.default_rng(31)
    values, at_us = rng.gamma(2.0, 1.0, 900), rng.integers(0, 24, 900) * 3600 * SECOND
    table = residuals.learn(residuals.empty(3), values, rng.choice([0, 2], 900), at_us)
    asked = np.full((3, 2), probability)
    for time in (0, 23):
        whole = residuals.quantile(table, probability)[time]
        own = residuals.quantiles(table, time, asked, wanted=probability)
        np.testing.assert_array_equal(own, np.stack([whole, whole], axis=1))
        assert np.isnan(own[1]).all()
        assert not np.isnan(own[[0, 2]]).any()


@pytest.mark.slow
@pytest.mark.parametrize("count", [21, 25, 30, 60])
@pytest.mark.parametrize("mean", [0.2, 1.0, 5.0])
def test_the_next_one_rises_above_a_quantile_of_few_at_most_as_often_as_stated(count: int, mean: float) -> None:
    random, tables = np.random.default_rng(count), 1000
    above = np.empty(tables)
    for number in range(tables):
        multiple = residuals.quantile(taught(random.exponential(mean, count).clip(0.0, 44.0)), 0.05)[0, 0]
        above[number] = np.exp(-multiple / mean)  # how often an exponential one does
    assert above.mean() <= 0.05 + 3 * above.std() / np.sqrt(tables)
    assert above.mean() > 0.03


@given(st.integers(0, 2**31), st.floats(0.01, 0.2), st.integers(20, 500))
def test_what_was_counted_is_never_read_above_the_highest_of_it(seed: int, probability: float, count: int) -> None:
    table = taught(np.random.default_rng(seed).uniform(0.0, 5.0, count))
    highest = -5.0 + 0.1 * (np.flatnonzero(table.counts[0, 0])[-1] + 1)
    assert residuals.quantile(table, probability)[0, 0] <= highest + 1e-9


@given(st.integers(0, 2**31), st.lists(st.floats(1e-12, 0.99), min_size=2, max_size=2))
def test_less_risk_never_means_a_lower_peak(seed: int, probabilities: list[float]) -> None:
    table = taught(np.random.default_rng(seed).gamma(2.0, 1.0, 50))
    careful, bold = (residuals.quantile(table, probability) for probability in sorted(probabilities))
    assert (careful >= bold - 1e-9).all()


def test_beyond_what_was_counted_the_tail_of_an_exponential_is_continued() -> None:
    ranks = (np.arange(100_000) + 0.5) / 100_000
    table = taught(-np.log(ranks))
    assert residuals.quantile(table, 1e-4)[0, 0] == pytest.approx(np.log(1e4), abs=0.15)
    assert residuals.quantile(table, 1e-8)[0, 0] == pytest.approx(np.log(1e8), abs=0.5)


def test_a_time_of_day_without_evidence_borrows_from_the_others() -> None:
    table = taught(np.full(100, 3.0))
    result = residuals.quantile(table, 0.5)[:, 0]
    np.testing.assert_allclose(result, 3.05, atol=0.051)
    stated = residuals.stated(table, 0.001)[:, 0]
    assert stated[0] == pytest.approx(1 / 101)
    assert stated[1] == pytest.approx(1 / 101)
    assert residuals.stated(table, 0.2)[1, 0] == 0.2
    crowd = taught(np.full(5000, 3.0))
    assert residuals.stated(crowd, 0.01)[1, 0] == 0.01  # of 200 others
    assert residuals.stated(crowd, 1e-4)[1, 0] == pytest.approx(1 / 201)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, np.nan])
def test_a_probability_that_is_none_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        residuals.quantile(residuals.empty(1), probability)


def test_mean_and_variance_are_those_of_all_samples_weighed_by_age_on_every_prefix() -> None:
    usage = noise(5, 40, 3)
    for count in range(1, 41):
        state, _ = feed(usage[:count])
        weights = np.exp2(-np.arange(count)[::-1] * STEP / PARAMS.half_life_seconds) * STEP
        weights[0] *= 1 / STEP  # how long the first one covers is not known
        mean = np.average(usage[:count, :, 0], axis=0, weights=weights)
        variance = np.average((usage[:count, :, 0] - mean) ** 2, axis=0, weights=weights)
        np.testing.assert_allclose(state.weight[:, 0], weights.sum(), rtol=1e-12)
        np.testing.assert_allclose(state.mean[:, 0], mean, rtol=1e-12)
        np.testing.assert_allclose(state.variance[:, 0], variance, rtol=1e-9, atol=1e-15)


@pytest.mark.slow
@given(st.integers(0, 2**31), st.integers(1, 4))
def test_rows_may_be_batched_in_any_way(seed: int, cut: int) -> None:
    usage = np.random.default_rng(seed).random((12, 5, 2))
    params = conformal.Params(interval_seconds=STEP, horizon_seconds=4 * STEP)
    whole, table = feed(usage, params=params, slots=6)
    parts = [feed(usage[:, part], params=params, slots=6) for part in (slice(None, cut), slice(cut, None))]
    together = arrays.extend(parts[0][0], parts[1][0])
    for name, result in arrays.flatten(together).items():
        np.testing.assert_array_equal(result, arrays.flatten(whole)[name])
    np.testing.assert_array_equal(parts[0][1].counts + parts[1][1].counts, table.counts)
    assert table.counts.sum() == 5 * 2 * (12 - 4)


def test_the_sample_that_a_prediction_was_made_of_does_not_judge_it() -> None:
    usage = np.full((3, 1, 1), 0.1)
    usage[1] = 0.9
    params = conformal.Params(interval_seconds=10 * STEP, horizon_seconds=STEP)
    _, table = feed(usage[1:], params=params, slots=1)
    assert np.flatnonzero(table.counts[0, 0])[0] == 0  # far below the mean, so in the lowest bin


def test_what_is_learned_belongs_to_the_time_of_day_at_which_it_was_predicted() -> None:
    params = conformal.Params(interval_seconds=3600, horizon_seconds=2 * 3600)
    _, table = feed(noise(1, 40, 2), params=params, slots=4, start=22 * 3600)
    assert table.counts.sum(axis=(1, 2)).nonzero()[0].tolist() == [22, 23]


def test_what_waits_through_a_gap_teaches_nothing() -> None:
    params = conformal.Params(interval_seconds=STEP, horizon_seconds=3 * STEP)
    state, table = conformal.init(1, 1, slots=8), residuals.empty(1)
    for at in (0, 300, 600, 600 + 1200):
        at_us = np.array([(86_400 + at) * SECOND])
        state, table = conformal.update(state, table, np.full((1, 1), 0.5), at_us, params=params)
    assert table.counts.sum() == 0
    assert np.count_nonzero(state.waiting.born_us) == 1


def test_a_clock_that_goes_back_changes_nothing() -> None:
    before, table = feed(noise(2, 20, 2))
    after, learned = conformal.update(before, table, np.full((2, 1), 0.9), before.at_us, params=PARAMS)
    np.testing.assert_array_equal(learned.counts, table.counts)
    for name, result in arrays.flatten(after).items():
        np.testing.assert_array_equal(result, arrays.flatten(before)[name])


def test_a_resource_that_is_missing_teaches_nothing_and_the_other_one_does() -> None:
    usage = np.random.default_rng(4).random((12, 3, 2))
    usage[:, :, 1] = np.nan
    params = conformal.Params(interval_seconds=STEP, horizon_seconds=4 * STEP)
    state, table = feed(usage, params=params, slots=6)
    assert table.counts.sum(axis=(0, 2)).tolist() == [3 * 8, 0]
    assert (conformal.peak(state, residuals.quantile(table, 0.1), params=params)[:, 1] == 1).all()


@pytest.mark.slow
def test_the_stated_probability_is_about_what_new_rows_then_show() -> None:
    table = conformal.close(*feed(noise(10, DAY, 1000)))[1]
    usage = noise(11, DAY, 1000)
    best = np.flip(np.maximum.accumulate(np.flip(usage, axis=0), axis=0), axis=0)
    multiples = {stated: residuals.quantile(table, stated) for stated in (0.3, 0.1, 0.02)}
    state, violated = conformal.init(1000, 1, slots=1), dict.fromkeys(multiples, 0.0)
    for number in range(DAY - 1):
        at_us = np.full(1000, (86_400 + number * STEP) * SECOND)
        state, _ = conformal.update(state, table, usage[number], at_us, params=PARAMS)
        for stated, multiple in multiples.items():
            peak = conformal.peak(state, multiple, params=PARAMS)
            violated[stated] += (peak < best[number + 1]).mean() / (DAY - 1)
    assert violated[0.3] == pytest.approx(0.3, abs=0.06)
    assert violated[0.1] == pytest.approx(0.1, abs=0.03)
    assert violated[0.02] == pytest.approx(0.02, abs=0.012)


def test_a_table_that_is_saved_and_read_again_predicts_the_same() -> None:
    table = conformal.close(*feed(noise(3, DAY, 5)))[1]
    again = arrays.restore(residuals.empty(1), arrays.flatten(table))
    np.testing.assert_array_equal(residuals.quantile(again, 0.01), residuals.quantile(table, 0.01))


def test_faded_evidence_vouches_for_less() -> None:
    table = taught(np.full(1000, 3.0))
    assert (residuals.stated(residuals.fade(table, 0.5), 1e-6) > residuals.stated(table, 1e-6))[0].all()
    whole, faded = (residuals.quantile(part, 0.1) for part in (table, residuals.fade(table, 0.5)))
    assert (faded >= whole).all()
    np.testing.assert_allclose(faded, whole, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("times", [2, 6, 24])
def test_what_one_horizon_taught_bounds_a_longer_one(times: int) -> None:
    """Without a turn of the day, usage over a longer horizon is above the stated peak at most as often as wanted."""
    short, long = (conformal.Params(horizon_seconds=3600.0 * hours, interval_seconds=3600.0) for hours in (1, times))
    used = np.clip(0.3 + 0.03 * np.random.default_rng(8).standard_normal((8 * DAY, 3, 1)), 0.0, 1.0)
    _, taught_short = feed(used, params=short, slots=1)
    _, taught_long = feed(used, params=long, slots=times)
    lengthened = residuals.lengthen(taught_short, 3600.0, 3600.0 * times)
    for probability in (0.5, 0.2, 0.1):
        needed = residuals.quantile(taught_long, probability).mean()
        assert residuals.quantile(taught_short, probability).mean() < needed
        assert residuals.quantile(lengthened, probability).mean() >= needed
    assert (residuals.stated(lengthened, 1e-9) >= residuals.stated(taught_short, 1e-9)).all()


def test_of_what_a_shorter_horizon_taught_the_highest_remain() -> None:
    table = taught(np.repeat([1.05, 3.05], [90, 10]))
    counts = residuals.lengthen(table, 3600.0, 10 * 3600.0).counts
    assert counts[0].sum() == pytest.approx(10 / 11)  # ten hours touch eleven of the 24 parts
    assert residuals.quantile(residuals.Table(counts), 0.9)[0, 0] >= 3.0
    assert residuals.lengthen(table, 3600.0, 600.0) is table


@pytest.mark.parametrize(("hours", "half_life_hours"), [(1, 3), (6, 6), (24, 24), (72, 24)])
def test_mean_and_deviation_follow_usage_over_about_the_horizon(hours: int, half_life_hours: int) -> None:
    params = calibration.params(Predict(horizon_seconds=hours * 3600), 8)
    assert params.half_life_seconds == half_life_hours * 3600


def test_nodes_that_start_together_learn_of_every_hour_at_a_horizon_of_a_day() -> None:
    params = calibration.params(Predict(horizon_seconds=86_400), 8)
    _, table = feed(noise(6, 6 * DAY, 2), params=params, slots=8)
    assert (table.counts.sum(axis=(1, 2)) > 0).all()
