"""Peaks from two bases: which decides, and that what is stated comes true as usage changes, and for each row."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.prediction.scoring import adaptive, calibration, conformal, oracle
from processors.rows import table as arrays
from schemas.sections.prediction import Predict
from tests.support.residual import DAY, noise, taught

Array = NDArray[np.float64]

SECOND = 10**6
STEP = 300


def live(usage: Array, settings: Predict) -> tuple[Array, calibration.Calibration]:
    """Return the peaks (samples, rows) in force after each sample (samples, rows, 1), and what was learned."""
    params, learned = calibration.params(settings, 8), calibration.Calibration(1, settings)
    rows = usage.shape[1]
    followed, state = conformal.init(rows, 1, slots=8), adaptive.init(rows, 1, slots=8)
    peaks = np.empty(usage.shape[:2])
    for number, used in enumerate(usage):
        second = 86_400 + number * STEP
        at_us = np.full(rows, second * SECOND)
        followed, state, learned.today = adaptive.update(
            followed, state, learned.today, used, at_us, in_force=learned.in_force, params=params
        )
        learned.enforce(second, settings.violation)
        peaks[number] = conformal.upper(adaptive.spread(followed, state, learned.in_force, params=params))[:, 0]
    return peaks, learned


def middle(learned: calibration.Calibration) -> float:
    """Return the multiple of the mean base that is in force for a row without a correction."""
    return float(learned.in_force.ladder[adaptive.MEAN, 0, len(adaptive.RUNGS) // 2])


def violations(peaks: Array, usage: Array, horizon: int) -> Array:
    """Return (samples, rows) 1 where usage rose above the peak within so many samples, 0 where not; NaN at the end."""
    return oracle.violation(peaks, oracle.peak(usage[:, :, 0].T, horizon=horizon).T)[:-horizon]


def test_a_single_node_is_vouched_for_at_a_horizon_of_a_day() -> None:
    settings = Predict(horizon_seconds=86_400, violation=0.05)
    peaks, learned = live(noise(7, 5 * DAY, 1), settings)
    assert (learned.stated <= settings.violation).all()
    assert peaks[-1, 0] < 0.9


def test_what_is_in_force_follows_what_was_learned_and_the_wanted_probability() -> None:
    learned = calibration.Calibration(1, Predict(violation=0.5))
    learned.today = learned.today._replace(mean=taught(np.linspace(0.0, 10.0, 100)))
    learned.enforce(10, 0.5)
    half = middle(learned)
    learned.enforce(11, 0.1)
    assert middle(learned) > half + 3
    learned.today = learned.today._replace(mean=taught(np.linspace(5.0, 15.0, 100)))
    learned.enforce(12, 0.5)
    assert middle(learned) > half + 4
    learned.today = learned.today._replace(mean=taught(np.full(100, 1.0)))
    learned.enforce(86_400 * 2, 0.5)  # a new day: what the old one taught fades
    assert learned.today.mean.counts.sum() == 0


def test_what_is_stated_holds_after_usage_has_become_rougher() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    calm, rough = noise(20, 2 * DAY, 20), noise(21, 3 * DAY, 20)
    burst = np.random.default_rng(22).random(rough.shape) < 0.01
    usage = np.concatenate([calm, np.clip(rough + 0.3 * burst, 0.0, 1.0)])
    peaks, _ = live(usage, settings)
    seen = np.nanmean(violations(peaks, usage, 12)[3 * DAY :])
    assert seen == pytest.approx(0.1, abs=0.03)


def test_too_many_violations_raise_all_peaks_and_too_few_lower_them() -> None:
    learned = calibration.Calibration(1, Predict(violation=0.1))
    learned.today = learned.today._replace(mean=taught(np.linspace(0.0, 10.0, 1000)))
    learned.enforce(10, 0.1)
    before, judged = middle(learned), np.full((2, 1), 100.0)
    learned.today = learned.today._replace(judged=judged, violated=judged * 0.5)
    learned.enforce(40, 0.1)
    raised = middle(learned)
    assert raised > before
    learned.today = learned.today._replace(judged=judged * 20, violated=judged * 0)
    learned.enforce(70, 0.1)
    assert middle(learned) < raised


@pytest.mark.slow
def test_what_is_stated_holds_for_the_row_that_is_unlike_the_others() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    usage = noise(23, 6 * DAY, 20)
    usage[:, 0] = np.where(np.random.default_rng(24).random((6 * DAY, 1)) < 0.05, 0.9, usage[:, 0])
    peaks, _ = live(usage, settings)
    of_row = np.nanmean(violations(peaks, usage, 12)[3 * DAY :], axis=0)
    assert of_row[0] < 0.2  # it rises to 0.9 in nearly half of all hours


@pytest.mark.slow
def test_what_rises_at_the_same_hour_of_each_day_is_foreseen() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.05)
    usage = noise(25, 8 * DAY, 10)
    start = np.arange(10) * 2  # each row has an hour of its own
    hour = np.arange(8 * DAY) // 12 % 24
    usage += 0.5 * (hour[:, None] == start)[..., None]
    peaks, learned = live(usage, settings)
    assert learned.in_force.base[0] == adaptive.CLOCK
    last = np.arange(8 * DAY) >= 7 * DAY
    before = last[:, None] & ((hour[:, None] + 1) % 24 == start)
    far = last[:, None] & ((hour[:, None] + 12) % 24 == start)
    assert (peaks > 0.5)[before].mean() > 0.9
    assert (peaks < 0.5)[far].mean() > 0.9


@pytest.mark.slow
def test_of_usage_without_a_clock_the_mean_decides() -> None:
    usage = np.random.default_rng(26).uniform(0.1, 0.3, (6 * DAY, 20, 1))
    spike = np.random.default_rng(27).random(usage.shape) < 0.002  # each at an hour at which none will come again
    _, learned = live(np.where(spike, 0.9, usage), Predict(horizon_seconds=3600, violation=0.1))
    assert learned.in_force.base[0] == adaptive.MEAN


def test_rows_may_be_batched_in_any_way_with_two_bases() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    usage, params = noise(28, DAY, 5), calibration.params(settings, 8)
    _, learned = live(usage, settings)

    def run(part: Array) -> tuple[adaptive.State, adaptive.Learned]:
        rows, total = part.shape[1], adaptive.empty(1)
        followed, state = conformal.init(rows, 1, slots=8), adaptive.init(rows, 1, slots=8)
        for number, used in enumerate(part):
            at_us = np.full(rows, (86_400 + number * STEP) * SECOND)
            followed, state, total = adaptive.update(
                followed, state, total, used, at_us, in_force=learned.in_force, params=params
            )
        return state, total

    whole, total = run(usage)
    parts = [run(usage[:, :2]), run(usage[:, 2:])]
    for name, result in arrays.flatten(arrays.extend(parts[0][0], parts[1][0])).items():
        np.testing.assert_array_equal(result, arrays.flatten(whole)[name])
    assert total.judged[adaptive.MEAN, 0] > 100
    for name, result in arrays.flatten(total).items():
        together = arrays.flatten(parts[0][1])[name] + arrays.flatten(parts[1][1])[name]
        np.testing.assert_array_equal(result, together)


def test_what_was_learned_is_the_same_after_it_was_stored() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    _, learned = live(noise(29, 2 * DAY, 5), settings)
    again = calibration.Calibration(1, settings)
    again.load(*learned.dump())
    np.testing.assert_array_equal(again.in_force.ladder, learned.in_force.ladder)
    for part in (again, learned):
        part.enforce(86_400 + 2 * DAY * STEP + 7200, 0.1)
    np.testing.assert_array_equal(again.in_force.ladder, learned.in_force.ladder)


def test_what_was_learned_with_one_base_is_taken_over() -> None:
    counts = taught(np.linspace(0.0, 10.0, 100)).counts
    places = np.flatnonzero(counts)
    stored: dict[str, NDArray[Any]] = {}
    for name in ("today", "before"):
        stored |= {f"{name}.places": places, f"{name}.counts": counts.ravel()[places]}
    learned = calibration.Calibration(1, Predict(violation=0.1))
    learned.load(86_400, stored)
    learned.enforce(86_400 + 30, 0.1)
    assert middle(learned) == pytest.approx(9.0, abs=0.3)
