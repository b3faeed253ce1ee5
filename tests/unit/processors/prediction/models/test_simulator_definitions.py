"""Back-test predictors are those of Google's published simulator: by hand, and against a plain loop over tasks."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.rows import table
from tests.support.processors import simulator

Array = NDArray[np.float64]
NAN = np.nan

# Tasks A, B and C come one after another: A is allowed 4 and has four samples, B 6 and three, C 2 and one.
LIMIT = np.array([4.0, 6.0, 2.0])
USAGE = np.array([[1, NAN, NAN], [3, 2, NAN], [2, 4, NAN], [2, 3, 1]])
ONE = np.zeros(3, dtype=np.intp)
often = settings(deadline=None, max_examples=60, derandomize=True)


def fed(usage: Array, limit: Array, *, history: int, cap: bool = True) -> simulator.State:
    """Return the state after all snapshots of usage (snapshots, tasks)."""
    state = simulator.init(usage.shape[1], history=history)
    for snapshot in usage:
        state = simulator.update(state, snapshot, limit, cap=cap)
    return state


def test_n_sigma_of_a_series_is_what_it_is_by_hand() -> None:
    """Newest first A used 2 2 3 1 and B 3 4 2; C is cold, for three samples are wanted.

    Ratios: (2+3)/(4+6) = 0.5, (2+4)/10 = 0.6, (3+2)/10 = 0.5, and A alone 1/4 = 0.25; their mean is 1.85/4 = 0.4625.
    Deviations: 0.0375, 0.1375, 0.0375, -0.2125; squares 0.00140625 + 0.01890625 + 0.00140625 + 0.04515625 = 0.066875,
    by 4 - 1 = 3. The peak is (0.4625 + 2 sqrt(0.066875/3)) of the 10 that A and B are allowed, and all 2 of C.
    """
    state = fed(USAGE, LIMIT, history=4)
    result = simulator.n_sigma(state, ONE, 1, n=2, minimum_samples=3)
    assert result[0] == pytest.approx(4.625 + 20 * (0.066875 / 3) ** 0.5 + 2, rel=1e-12)
    assert result[0] == pytest.approx(9.611078811, rel=1e-9)


def test_percentiles_of_a_series_are_what_they_are_by_hand() -> None:
    """The 90th: A has 0.25 0.5 0.5 0.75, place 0.9 * 3 = 2.7, so 0.5 + 0.7 * 0.25 = 0.675, of 4: 2.7.

    B has 2/6 3/6 4/6, place 0.9 * 2 = 1.8, so 3/6 + 0.8/6 = 3.8/6, of 6: 3.8. C is cold: 2. Together 8.5.
    """
    state = fed(USAGE, LIMIT, history=4)
    assert simulator.percentile(state, ONE, 1, fraction=0.9, minimum_samples=3)[0] == pytest.approx(8.5, rel=1e-12)


def test_the_sum_of_limits_bounds_n_sigma_however_many_deviations_are_asked_for() -> None:
    state = fed(USAGE, LIMIT, history=4)
    assert simulator.n_sigma(state, ONE, 1, n=50, minimum_samples=3)[0] == 12
    assert simulator.limits(state, ONE, 1)[0] == 12


def test_borg_default_is_nine_tenths_of_the_limits_of_tasks_that_are_there() -> None:
    assert simulator.borg_default(np.array([4.0, NAN, 6.0]), ONE, 1)[0] == pytest.approx(9.0, rel=1e-15)
    assert simulator.borg_default(LIMIT, ONE, 1, phi=0.5)[0] == 6


def test_the_maximum_takes_the_most_careful_predictor_of_each_row() -> None:
    result = simulator.maximum(np.array([1.0, 5.0, 1.0]), np.array([2.0, 3.0, NAN]), np.array([0.0, 4.0, 1.0]))
    np.testing.assert_array_equal(result, [2, 5, NAN])


def test_a_cold_task_counts_its_limit_and_no_task_is_warm_with_its_first_sample() -> None:
    steady = np.full((4, 1), 1.0)
    limit, row = np.array([8.0]), np.zeros(1, dtype=np.intp)
    for wanted, warm_from in ((1, 2), (2, 2), (3, 3)):
        for count in range(1, 5):
            state = fed(steady[:count], limit, history=4)
            expected = 1.0 if count >= warm_from else 8.0
            assert simulator.percentile(state, row, 1, fraction=1, minimum_samples=wanted)[0] == expected
            assert simulator.n_sigma(state, row, 1, n=3, minimum_samples=wanted)[0] == expected


def test_a_task_that_was_absent_is_cold_again() -> None:
    usage = np.array([[1.0], [1.0], [NAN], [1.0]])
    state = fed(usage, np.array([10.0]), history=4)
    assert state.samples[0] == 1
    assert np.isnan(state.usage[0, 1:]).all()
    gone = fed(usage[:3], np.array([10.0]), history=4)
    for result in (
        simulator.n_sigma(gone, ONE[:1], 1, n=3, minimum_samples=2),
        simulator.percentile(gone, ONE[:1], 1, fraction=0.9, minimum_samples=2),
        simulator.limits(gone, ONE[:1], 1),
    ):
        assert result[0] == 0


def test_usage_above_the_limit_counts_as_the_limit_unless_it_is_asked_not_to() -> None:
    usage, limit = np.array([[8.0], [8.0]]), np.array([4.0])
    for cap, expected in ((True, 4.0), (False, 8.0)):
        state = fed(usage, limit, history=2, cap=cap)
        assert simulator.percentile(state, ONE[:1], 1, fraction=0.5, minimum_samples=2)[0] == expected


def test_a_history_of_one_sample_has_no_deviation_and_counts_the_limit() -> None:
    state = fed(np.ones((5, 1)), np.array([10.0]), history=1)
    assert simulator.n_sigma(state, ONE[:1], 1, n=1, minimum_samples=2)[0] == 10


def test_a_task_that_is_allowed_nothing_has_the_ratio_nought() -> None:
    state = fed(np.ones((3, 1)), np.zeros(1), history=3, cap=False)
    assert simulator.n_sigma(state, ONE[:1], 1, n=3, minimum_samples=2)[0] == 0
    assert simulator.percentile(state, ONE[:1], 1, fraction=0.9, minimum_samples=2)[0] == 0


def test_a_percentile_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fraction is 95: it must be within 0\.\.1"):
        simulator.percentile(simulator.init(1, history=2), ONE[:1], 1, fraction=95, minimum_samples=2)


def looped(
    usage: Array,
    limit: Array,
    row: NDArray[np.intp],
    rows: int,
    *,
    history: int,
    minimum: int,
    n: float,
    fraction: float,
) -> tuple[list[float], list[float]]:
    """Return both predictors after all snapshots (snapshots, tasks), task by task."""
    kept: list[list[float]] = []
    for series in usage.T:
        present = np.flatnonzero(np.isnan(series))
        kept.append(list(series[present[-1] + 1 if present.size else 0 :])[::-1])
    sigma, central = [], []
    for wanted in range(rows):
        mine = [index for index in range(len(row)) if row[index] == wanted and kept[index]]
        warm = [index for index in mine if len(kept[index]) >= max(minimum, 2)]
        cold = sum(limit[index] for index in mine if index not in warm)
        ratios = []
        for age in range(history):
            there = [index for index in warm if len(kept[index]) > age]
            if there:
                allowed = sum(limit[index] for index in there)
                ratios.append(sum(min(kept[index][age], limit[index]) for index in there) / allowed)
        allowed = sum(limit[index] for index in warm)
        part = min(1.0, float(np.mean(ratios)) + n * statistics.stdev(ratios)) if warm else 0.0
        sigma.append(cold + part * allowed)
        samples = {index: np.minimum(kept[index][:history], limit[index]) / limit[index] for index in warm}
        central.append(
            cold + sum(float(np.percentile(samples[index], 100 * fraction)) * limit[index] for index in warm)
        )
    return sigma, central


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(2, 6), st.integers(1, 5), st.floats(0, 1))
@often
def test_arrays_say_what_a_loop_over_tasks_says(
    seed: int, snapshots: int, history: int, minimum: int, fraction: float
) -> None:
    rng = np.random.default_rng(seed)
    tasks, rows = 9, 3
    limit, row = rng.uniform(0.5, 8, tasks), rng.integers(0, rows, tasks)
    usage = rng.uniform(0, 9, (snapshots, tasks))
    usage[rng.random(usage.shape) < 0.15] = NAN
    state = fed(usage, limit, history=history)
    sigma, central = looped(usage, limit, row, rows, history=history, minimum=minimum, n=1.5, fraction=fraction)
    result = simulator.n_sigma(state, row, rows, n=1.5, minimum_samples=minimum)
    np.testing.assert_allclose(result, sigma, rtol=1e-12)
    result = simulator.percentile(state, row, rows, fraction=fraction, minimum_samples=minimum)
    np.testing.assert_allclose(result, central, rtol=1e-12)


def test_a_machine_does_not_know_of_the_others() -> None:
    rng = np.random.default_rng(5)
    usage, limit, row = rng.random((8, 30)), rng.uniform(0.2, 1, 30), rng.integers(0, 4, 30)
    state = fed(usage, limit, history=6)
    together = simulator.n_sigma(state, row, 4, n=2, minimum_samples=3)
    for machine in range(4):
        tasks = np.flatnonzero(row == machine)
        alone = simulator.n_sigma(table.take(state, tasks), np.zeros_like(tasks), 1, n=2, minimum_samples=3)
        assert alone[0] == pytest.approx(together[machine], rel=1e-14)
