"""Rows that have used nothing, as of a class of which a node runs no pod: what they teach, and what they get."""

import numpy as np
import pytest

from processors.prediction.fold import PredictionPartition
from schemas.sections.prediction import Predict
from tests.support.processors.residual import DAY, noise
from tests.unit.processors.prediction.fold.recordings import FAST, configured, predictions
from tests.unit.processors.prediction.scoring.test_adaptive import live, violations
from tests.unit.processors.prediction.seconds import SETTINGS, facts, second_of


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.05, 0.1])
def test_what_is_stated_holds_for_busy_rows_beside_those_that_use_nothing(probability: float) -> None:
    settings, busy = Predict(horizon_seconds=3600, violation=probability), noise(40, 6 * DAY, 10)
    alone, _, _ = live(busy, settings)
    among, _, _ = live(np.concatenate((busy, np.zeros((6 * DAY, 19, 1))), axis=1), settings)
    seen = np.nanmean(violations(among[:, :10], busy, 12)[2 * DAY :])
    assert 0.5 * probability < seen <= probability
    np.testing.assert_array_equal(among[:, :10], alone)
    assert (among[-1, 10:] > 0).all()  # pods may come
    assert (among[-1, 10:] < 0.05).all()


@pytest.mark.slow
def test_a_row_that_begins_to_use_something_is_learned_of_from_then_on() -> None:
    settings, usage = Predict(horizon_seconds=3600, violation=0.1), noise(41, 3 * DAY, 4)
    usage[:DAY] = 0.0
    peaks, learned, _ = live(usage, settings)
    assert (peaks[: DAY + 11] == 1.0).all()
    assert (peaks[-1] < 0.6).all()
    assert (learned.stated == settings.violation).all()


def test_a_class_that_no_pod_has_takes_nothing_from_what_is_reclaimed() -> None:
    flags = FAST | SETTINGS | {"predict_model": "calibrated", "predict_violation": "0.5"}
    messages = [facts("p", -100)]
    for second in range(120):
        messages += second_of(second, ["p"], cpu=0.3 + 0.01 * (second % 7))
    last = predictions(PredictionPartition(configured(**flags), 0).fold(messages))[-1]
    assert last.assumed is None
    assert last.peaks["none"]["calibrated"].cpu == 0
    assert 0 < last.peaks["prod"]["calibrated"].cpu < 1
    assert last.reclaimable.cpu > 0
