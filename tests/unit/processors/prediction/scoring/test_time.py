"""What was learned at gaps, over hours in which nothing was, and after a clock that was set back."""

import numpy as np
import pytest

from processors.prediction.scoring import calibration, conformal, expert, residuals, same_clock
from schemas.sections.prediction import Predict
from tests.support.processors.residual import DAY, noise
from tests.unit.processors.prediction.scoring.test_adaptive import live, middle, teach

HOUR_US = 3600 * 10**6


@pytest.mark.parametrize("seconds", [30, 900, 1200, 3600])
def test_windows_of_any_length_that_may_be_set_are_no_gaps(seconds: float) -> None:
    assert calibration.params(Predict(update_seconds=seconds), 8).gap_seconds >= max(900, 2 * seconds)


def test_hours_in_which_nothing_is_judged_count_for_what_was_judged_before() -> None:
    """A correction by few predictions is as large after a night without any as the time says."""
    settings = Predict(violation=0.1, horizon_seconds=86_400)
    corrected = []
    for pauses in (range(0), range(300, 11_900, 300)):
        learned = calibration.Calibration(1, settings)
        teach(learned, np.linspace(0.0, 10.0, 1000))
        judged = np.full((expert.COUNT, 1), 100.0)
        for second in (86_410, 98_410):
            learned.today = learned.today._replace(judged=judged, violated=judged * 0.5)
            learned.enforce(second, settings.violation)
            for pause in pauses:
                learned.enforce(second + pause, settings.violation)
        corrected.append(middle(learned))
    assert corrected[0] == pytest.approx(corrected[1])


def test_a_clock_that_is_set_back_takes_nothing_from_what_was_seen_at_the_same_hours() -> None:
    state, none = same_clock.init(1, 1), np.zeros(1, dtype=np.int64)
    before = none
    for hour in range(24):
        at_us = np.array([(480_000 + hour) * HOUR_US])
        usage = np.array([[0.8 if hour == 9 else 0.1]])
        state, before = same_clock.update(state, usage, before, at_us, horizon_seconds=3600), at_us
    back = before - 2 * HOUR_US
    # As a gap: nothing is known of the sample before.
    state = same_clock.update(state, np.array([[0.1]]), none, back, horizon_seconds=86_400)
    assert state.ahead.tolist() == [[pytest.approx(0.8)]]
    assert np.isfinite(state.highest).any(axis=2).all()


@pytest.mark.parametrize(("probability", "count"), [(0.01, 99), (0.01, 104), (0.05, 20), (0.002, 600)])
def test_no_midnight_takes_back_what_was_vouched_for(probability: float, count: int) -> None:
    learned = calibration.Calibration(1, Predict(violation=probability, horizon_seconds=86_400))
    teach(learned, np.linspace(0.0, 5.0, count))
    for day in range(1, 9):
        learned.enforce(day * 86_400 - 1320, probability)
        assert learned.stated.tolist() == [probability]
        assert np.isfinite(middle(learned))
    assert learned.dump()[1]["before.counts"].sum() == pytest.approx(1 / probability - 1)


def test_what_is_more_than_vouches_fades_by_a_tenth_each_day() -> None:
    learned = calibration.Calibration(1, Predict(violation=0.05))
    teach(learned, np.linspace(0.0, 5.0, 1000))
    for second in (100, 86_400, 2 * 86_400):
        learned.enforce(second, 0.05)
    assert learned.dump()[1]["before.counts"].sum() == pytest.approx(810)


@pytest.mark.slow
def test_a_node_alone_is_vouched_for_at_a_horizon_of_a_day_and_a_small_probability() -> None:
    settings = Predict(horizon_seconds=86_400, violation=0.01)
    peaks, learned, _ = live(noise(42, 24 * DAY, 1), settings)
    assert (learned.stated <= settings.violation).all()
    assert (peaks[:DAY] == 1.0).all()
    assert (peaks[-8 * DAY :] < 0.9).all()


@pytest.mark.parametrize(
    ("horizon", "update", "gap"),
    [(300, 30, 75), (1200, 30, 300), (3600, 30, 900), (86_400, 30, 900), (300, 600, 1500)],
)
def test_a_gap_is_short_beside_the_horizon_and_longer_than_two_windows(horizon: int, update: int, gap: float) -> None:
    params = calibration.params(Predict(horizon_seconds=horizon, update_seconds=update), 8)
    assert params.gap_seconds == gap


@pytest.mark.parametrize(("pause", "taught"), [(30, True), (840, False)])
def test_a_sample_long_after_a_short_horizon_judges_nothing(pause: int, taught: bool) -> None:
    params = calibration.params(Predict(horizon_seconds=300), 8)
    state, table = conformal.init(1, 1, slots=8), residuals.empty(1)
    for second in (*range(0, 300, 30), 270 + pause):
        at_us = np.array([(86_400 + second) * 10**6])
        state, table = conformal.update(state, table, np.full((1, 1), 0.3), at_us, params=params)
    assert (table.counts.sum() > 0) == taught
