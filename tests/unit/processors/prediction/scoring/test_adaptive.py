"""Peaks from several bases: which decides, and that what is stated comes true as usage changes, and for each row."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.prediction.scoring import adaptive, base, calibration, conformal, expert, oracle, residuals
from processors.rows import table as arrays
from schemas.sections.prediction import Predict
from tests.support.processors.residual import DAY, noise, taught

Array = NDArray[np.float64]

SECOND = 10**6
STEP = 300


def live(usage: Array, settings: Predict) -> tuple[Array, calibration.Calibration, adaptive.State]:
    """Return the peaks (samples, rows) in force after each sample (samples, rows, 1), what was learned, and rows."""
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
    return peaks, learned, state


def middle(learned: calibration.Calibration) -> float:
    """Return the multiple of the mean base that is in force for a row without a correction."""
    return float(learned.in_force.ladder[base.MEAN, 0, len(expert.RUNGS) // 2])


def counted(learned: calibration.Calibration, state: adaptive.State) -> Array:
    """Return how much each base counts on each row (rows, bases)."""
    is_ready = np.ones(state.loss.shape, dtype=np.bool_)
    return expert.weights(state.loss, state.judged, learned.in_force, is_ready)[:, :, 0]


def teach(learned: calibration.Calibration, values: Array) -> None:
    """Let the mean base have learned these z today, at midnight."""
    learned.today = learned.today._replace(tables=(taught(values), *learned.today.tables[1:]))


def violations(peaks: Array, usage: Array, horizon: int) -> Array:
    """Return (samples, rows) 1 where usage rose above the peak within so many samples, 0 where not; NaN at the end."""
    return oracle.violation(peaks, oracle.peak(usage[:, :, 0].T, horizon=horizon).T)[:-horizon]


@pytest.mark.slow
def test_a_single_node_is_vouched_for_at_a_horizon_of_a_day() -> None:
    settings = Predict(horizon_seconds=86_400, violation=0.05)
    peaks, learned, _ = live(noise(7, 5 * DAY, 1), settings)
    assert (learned.stated <= settings.violation).all()
    assert peaks[-1, 0] < 0.9


def test_what_is_in_force_follows_what_was_learned_and_the_wanted_probability() -> None:
    learned = calibration.Calibration(1, Predict(violation=0.5))
    teach(learned, np.linspace(0.0, 10.0, 100))
    learned.enforce(10, 0.5)
    half = middle(learned)
    learned.enforce(11, 0.1)
    assert middle(learned) > half + 3
    teach(learned, np.linspace(5.0, 15.0, 100))
    learned.enforce(12, 0.5)
    assert middle(learned) > half + 4
    teach(learned, np.full(100, 1.0))
    learned.enforce(86_400 * 2, 0.5)  # a new day: what the old one taught fades
    assert learned.today.tables[base.MEAN].counts.sum() == 0


@pytest.mark.slow
def test_what_is_stated_holds_after_usage_has_become_rougher() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    calm, rough = noise(20, 2 * DAY, 20), noise(21, 3 * DAY, 20)
    burst = np.random.default_rng(22).random(rough.shape) < 0.01
    usage = np.concatenate([calm, np.clip(rough + 0.3 * burst, 0.0, 1.0)])
    peaks, _, _ = live(usage, settings)
    seen = np.nanmean(violations(peaks, usage, 12)[3 * DAY :])
    assert seen == pytest.approx(0.1, abs=0.03)


def test_too_many_violations_raise_all_peaks_and_too_few_lower_them() -> None:
    learned = calibration.Calibration(1, Predict(violation=0.1))
    teach(learned, np.linspace(0.0, 10.0, 1000))
    learned.enforce(10, 0.1)
    before, judged = middle(learned), np.full((expert.COUNT, 1), 100.0)
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
    peaks, _, _ = live(usage, settings)
    of_row = np.nanmean(violations(peaks, usage, 12)[3 * DAY :], axis=0)
    assert of_row[0] < 0.2  # it rises to 0.9 in nearly half of all hours


@pytest.mark.slow
def test_what_rises_at_the_same_hour_of_each_day_is_foreseen() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.05)
    usage = noise(25, 8 * DAY, 10)
    start = np.arange(10) * 2  # each row has an hour of its own
    hour = np.arange(8 * DAY) // 12 % 24
    usage += 0.5 * (hour[:, None] == start)[..., None]
    peaks, _, _ = live(usage, settings)
    last = np.arange(8 * DAY) >= 7 * DAY
    before = last[:, None] & ((hour[:, None] + 1) % 24 == start)
    far = last[:, None] & ((hour[:, None] + 12) % 24 == start)
    assert (peaks > 0.5)[before].mean() > 0.9
    assert (peaks < 0.5)[far].mean() > 0.9


@pytest.mark.slow
def test_the_clock_counts_less_where_usage_has_none() -> None:
    usage = np.random.default_rng(26).uniform(0.1, 0.3, (6 * DAY, 20, 1))
    spike = np.random.default_rng(27).random(usage.shape) < 0.002  # each at an hour at which none will come again
    _, learned, state = live(np.where(spike, 0.9, usage), Predict(horizon_seconds=3600, violation=0.1))
    share = counted(learned, state)
    assert (share[:, base.CLOCK] < share[:, base.MEAN]).mean() > 0.9


@pytest.mark.slow
def test_rows_may_be_batched_in_any_way_with_several_bases() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    usage, params = noise(28, DAY, 5), calibration.params(settings, 8)
    _, learned, _ = live(usage, settings)

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
    assert total.judged[0, 0] > 100
    for name, result in arrays.flatten(total).items():
        together = arrays.flatten(parts[0][1])[name] + arrays.flatten(parts[1][1])[name]
        np.testing.assert_array_equal(result, together)


@pytest.mark.slow
def test_what_was_learned_is_the_same_after_it_was_stored() -> None:
    settings = Predict(horizon_seconds=3600, violation=0.1)
    _, learned, _ = live(noise(29, 2 * DAY, 5), settings)
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


def test_what_was_learned_with_two_bases_is_taken_over_and_the_others_are_not_vouched_for() -> None:
    stored: dict[str, NDArray[Any]] = {"in_force.base": np.zeros(1, dtype=np.int64)}
    for name in ("today", "before"):
        for suffix, values in (("", np.linspace(0.0, 10.0, 100)), (".clock", np.linspace(-1.0, 1.0, 100))):
            counts = taught(values).counts
            places = np.flatnonzero(counts)
            stored |= {f"{name}{suffix}.places": places, f"{name}{suffix}.counts": counts.ravel()[places]}
    learned = calibration.Calibration(1, Predict(violation=0.1))
    learned.load(86_400, stored)
    learned.enforce(86_400 + 30, 0.1)
    assert middle(learned) == pytest.approx(9.0, abs=0.3)
    vouched = ~np.isnan(learned.in_force.ladder).any(axis=(1, 2))
    assert np.flatnonzero(vouched).tolist() == [base.MEAN, base.CLOCK]


def test_rows_of_the_time_of_two_bases_keep_their_clock_and_start_afresh_otherwise() -> None:
    fresh = arrays.flatten(adaptive.init(3, 2, slots=8), "rows.")
    highest = np.full_like(fresh["rows.evidence.clock.highest"], 0.5)
    old = {
        "rows.clock.highest": highest,
        "rows.clock.ahead": np.full((3, 2), 0.5),
        "rows.bases": np.full((3, 2, 8), 0.1),
        "rows.peaks": np.full((3, 2, 2, 8), 0.1),
        "rows.offset": np.full((3, 2, 2), 1.0),
        "other": np.zeros(1),
    }
    taken = adaptive.widen(old, "rows.", 3, 2, 8)
    assert "other" in taken
    state = arrays.restore(adaptive.init(0, 2, slots=8), taken, "rows.")
    np.testing.assert_array_equal(state.evidence.clock.highest, highest)
    assert not state.offset.any()
    assert adaptive.widen(fresh, "rows.", 3, 2, 8) is fresh


def test_on_each_row_counts_what_was_good_on_it_and_on_a_new_row_what_was_good_on_all() -> None:
    loss = np.zeros((3, expert.COUNT, 1), dtype=np.float32)
    judged = np.full_like(loss, 1000.0)
    judged[2] = 0.0
    loss[:2] = 10.0
    loss[0, 1] = loss[1, 2] = 1.0
    in_force = expert.nothing(1, 0.05)._replace(loss=np.full((expert.COUNT, 1), 0.02))
    in_force.loss[3] = 0.01
    ready = np.ones(loss.shape, dtype=np.bool_)
    share = expert.weights(loss, judged, in_force, ready)[:, :, 0]
    assert share.argmax(axis=1).tolist() == [1, 2, 3]
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    np.testing.assert_allclose(share[2, 0] / share[2, 3], np.exp(-3.0))  # twice the loss
    ready[:, 1] = False
    assert not expert.weights(loss, judged, in_force, ready)[:, 1].any()
    in_force.loss[3] = np.nan  # never judged
    assert not expert.weights(loss, judged, in_force, ready)[:, 3].any()
    ready[:] = False
    ready[:, 3] = True
    assert (expert.weights(loss, judged, in_force, ready)[:, 3] == 1.0).all()
    ready[:] = False
    assert not expert.weights(loss, judged, in_force, ready).any()


def test_the_rarer_violations_are_the_longer_the_partition_decides_which_base_counts_on_a_row() -> None:
    judged = np.full((1, expert.COUNT, 1), 60.0, dtype=np.float32)
    loss = 0.02 * judged
    loss[0, base.CLOCK] /= 2
    of_all = np.full((expert.COUNT, 1), 0.02)
    of_all[base.PAST] /= 2
    best = {
        probability: expert.weights(
            loss, judged, expert.nothing(1, probability)._replace(loss=of_all), np.ones(loss.shape, dtype=np.bool_)
        ).argmax()
        for probability in (0.1, 0.01)
    }
    assert best == {0.1: base.CLOCK, 0.01: base.PAST}


def test_a_row_is_corrected_by_what_a_horizon_taught_and_never_beyond_the_ladder() -> None:
    corrected = np.zeros((1, expert.COUNT, 1), dtype=np.float32)
    failed = np.full(corrected.shape, 0.05 - 1.0)
    for _ in range(8):
        corrected = expert.correct(corrected, failed, horizon_seconds=86_400.0, interval_seconds=10_800.0)
    np.testing.assert_allclose(corrected, -0.95 * 0.25, rtol=1e-5)
    assert (expert.correct(corrected, 1e6 * failed, horizon_seconds=3600.0, interval_seconds=60.0) == -3.0).all()


@pytest.mark.parametrize(("hours", "times"), [(0.5, 1.0), (1, 1.0), (4, 2.0), (24, np.sqrt(24)), (100, 5.0)])
def test_a_partition_is_corrected_faster_at_long_horizons(hours: float, times: float) -> None:
    assert expert.pace(3600.0 * hours) == pytest.approx(times)
    learned = calibration.Calibration(1, Predict(violation=0.1, horizon_seconds=3600.0 * hours))
    teach(learned, np.linspace(0.0, 10.0, 1000))
    learned.enforce(10, 0.1)
    judged = np.full((expert.COUNT, 1), 100.0)
    learned.today = learned.today._replace(judged=judged, violated=judged * 0.3)
    learned.enforce(10, 0.1)
    moved = learned.dump()[1]["adapted.correction"]
    np.testing.assert_allclose(moved, times * -20.0 / 120.0)


def test_a_horizon_of_a_day_learns_at_all_hours_together() -> None:
    table = residuals.empty(1)
    table.counts[3, 0, 60], table.counts[15, 0, 90] = 100.0, 100.0
    asked = np.array([[0.25]])
    day, hour = (residuals.reach(table, seconds) for seconds in (86_400.0, 3600.0))
    assert (day, hour, residuals.reach(table, 60.0), residuals.reach(table, 1e6)) == (24, 1, 1, 24)
    whole = {float(residuals.quantiles(table, at, asked, wanted=0.05, parts=day)[0, 0]) for at in range(24)}
    assert len(whole) == 1
    early, late = (residuals.quantiles(table, at, asked, wanted=0.05, parts=hour)[0, 0] for at in (3, 15))
    assert early < late
    assert residuals.stated_at(table, 8, 0.005, parts=day)[0] == pytest.approx(0.005)
    assert residuals.stated_at(table, 8, 0.001, parts=hour)[0] == residuals.stated(table, 0.001)[8, 0]
