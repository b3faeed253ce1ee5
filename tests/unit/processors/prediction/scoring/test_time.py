"""What was learned at gaps, over hours in which nothing was, and after a clock that was set back."""

import numpy as np
import pytest

from processors.prediction.scoring import calibration, expert, same_clock
from schemas.sections.prediction import Predict
from tests.unit.processors.prediction.scoring.test_adaptive import middle, teach

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
