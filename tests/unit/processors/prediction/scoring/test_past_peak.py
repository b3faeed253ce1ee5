"""The faded mean of the peaks that came within earlier horizons."""

import numpy as np
import pytest

from processors.prediction.scoring import past_peak, pending

HOUR = 3600.0


def waiting(highest: float) -> pending.State:
    """Return one row with one prediction, above which usage has come so high."""
    return pending.init(1, 1, 1)._replace(highest=np.full((1, 1, 1), highest))


def test_mean_and_scale_are_those_of_all_peaks_weighed_by_age_on_every_prefix() -> None:
    rng = np.random.default_rng(1)
    peaks, elapsed = rng.uniform(0.1, 0.9, 30), rng.uniform(600.0, 7200.0, 30)
    state, done = past_peak.init(1, 1), np.ones((1, 1), dtype=np.bool_)
    for number in range(30):
        state = past_peak.update(
            state, waiting(peaks[number]), done, elapsed[number : number + 1], horizon_seconds=2 * HOUR
        )
        seen = peaks[: number + 1]
        age = np.cumsum(elapsed[number:0:-1], dtype=np.float64)[::-1] if number else np.zeros(0)
        weight = np.exp2(-np.append(age, 0.0) / (6 * HOUR))
        mean = np.average(seen, weights=weight)
        assert past_peak.base(state)[0, 0] == pytest.approx(mean)
        squares = (weight * (seen - mean) ** 2).sum() + 4 * 0.01**2
        assert past_peak.scale(state)[0, 0] == pytest.approx(np.sqrt(squares / (weight.sum() + 4)))


def test_of_a_row_of_which_no_horizon_has_ended_there_is_no_base() -> None:
    state = past_peak.update(
        past_peak.init(1, 1), waiting(0.5), np.zeros((1, 1), dtype=np.bool_), np.array([30.0]), horizon_seconds=HOUR
    )
    assert np.isnan(past_peak.base(state)).all()
    unseen = past_peak.update(
        state, waiting(np.nan), np.ones((1, 1), dtype=np.bool_), np.array([30.0]), horizon_seconds=HOUR
    )
    assert np.isnan(past_peak.base(unseen)).all()
    assert (past_peak.scale(unseen) > 0).all()
