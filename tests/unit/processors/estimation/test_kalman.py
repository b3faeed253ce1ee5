"""Every form finds cost and capacity, and none goes astray where nothing can be learned."""

from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.estimation.cost import kalman_delta, kalman_dual, kalman_joint
from processors.estimation.cost.kalman import Estimate

Array = NDArray[np.float64]
FORMS = [kalman_delta, kalman_joint, kalman_dual]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__.split(".")[-1])
Q = 1e-4


def fold(form: ModuleType, signal: Array, pods: Array, *, cost0: float = 0.2, noise: float = Q) -> list[Estimate]:
    """Run a form over (seconds, nodes), nobody held."""
    state = form.init(signal[0], np.full(signal.shape[1], cost0))
    estimates = []
    for now, running in zip(signal, pods, strict=True):
        state, result = form.update(state, now, running, np.zeros(now.shape, dtype=bool), process_noise=noise)
        estimates.append(result)
    return estimates


def bursts(seconds: int, nodes: int, seed: int) -> Array:
    """Return pod counts 0..12 that change every ten seconds or so."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((seconds, nodes)) < 0.1, rng.integers(-3, 4, (seconds, nodes)), 0)
    pods = np.full((seconds, nodes), 3.0)
    for second in range(1, seconds):
        pods[second] = np.clip(pods[second - 1] + steps[second], 0, 12)
    return pods


@every_form
@pytest.mark.parametrize("cost0", [0.05, 0.7, 5.0])
def test_a_noiseless_linear_series_is_recovered(form: ModuleType, cost0: float) -> None:
    pods = bursts(300, 20, 1)
    result = fold(form, 10 - 0.7 * pods, pods, cost0=cost0)[-1]
    assert result.cost == pytest.approx(0.7, abs=1e-4)
    assert result.capacity == pytest.approx(10, abs=1e-3)


@every_form
def test_a_noisy_series_is_recovered_and_the_error_is_as_large_as_the_variance_says(form: ModuleType) -> None:
    pods = bursts(900, 200, 2)
    signal = 10 - 0.7 * pods + 0.05 * np.random.default_rng(3).standard_normal(pods.shape)
    result = fold(form, signal, pods)[-1]
    error = result.cost - 0.7
    assert np.sqrt(np.mean(error**2)) < 0.05
    assert np.sqrt(np.mean((result.capacity - 10) ** 2)) < 0.5
    # The true cost stands still here while the filter expects it to wander: its variance may be too large.
    assert np.mean(error**2 / result.variance_of_cost) < 1.5


@every_form
def test_cost_is_positive_and_both_ways_to_availability_agree(form: ModuleType) -> None:
    pods = bursts(300, 5, 4)
    signal = 10 - 0.7 * pods
    result = fold(form, signal, pods)[-1]
    assert (result.cost > 0).all()
    assert signal[-1] / result.cost == pytest.approx(result.capacity / result.cost - pods[-1], abs=1e-3)


@every_form
def test_at_a_constant_number_of_pods_the_cost_stays_what_it_was(form: ModuleType) -> None:
    rng = np.random.default_rng(5)
    signal = 4 - 0.5 * 4 + 0.2 * rng.standard_normal((300, 10))
    result = fold(form, signal, np.full(signal.shape, 4.0), cost0=0.3)[-1]
    assert np.array_equal(result.cost, np.full(10, 0.3))
    if form is not kalman_delta:
        assert result.capacity == pytest.approx(2 + 0.3 * 4, abs=0.3)


@every_form
def test_a_saturated_or_churning_or_unknown_second_leaves_every_bit_of_the_state(form: ModuleType) -> None:
    pods = bursts(50, 4, 6)
    state = form.init(10 - 0.7 * pods[0], np.full(4, 0.2))
    for running in pods:
        state, before = form.update(state, 10 - 0.7 * running, running, np.zeros(4, dtype=bool), process_noise=Q)
    signal, hold = np.array([0.0, 3.0, np.nan, 3.0]), np.array([False, True, False, False])
    running = np.array([30.0, 5.0, 5.0, np.nan])
    after, result = form.update(state, signal, running, hold, process_noise=Q)
    for old, new in zip(state, after, strict=True):
        np.testing.assert_array_equal(old, new)
    for expected, value in zip(before, result, strict=True):
        np.testing.assert_array_equal(expected, value)


@every_form
def test_saturation_does_not_drive_the_cost_to_zero(form: ModuleType) -> None:
    pods = np.concatenate((bursts(200, 1, 7), np.arange(15.0, 60.0)[:, np.newaxis]))
    result = fold(form, np.maximum(10 - 0.7 * pods, 0), pods)[-1]
    assert result.cost == pytest.approx(0.7, abs=1e-4)


@every_form
def test_a_signal_that_rises_with_pods_cannot_make_the_cost_negative(form: ModuleType) -> None:
    pods = bursts(300, 5, 8)
    result = fold(form, 2 + 0.5 * pods, pods)[-1]
    assert (result.cost > 0).all()
    assert (result.cost < 0.1).all()


@every_form
def test_a_burst_that_is_held_is_learned_from_afterwards(form: ModuleType) -> None:
    pods = np.repeat([2.0, 4.0, 4.0, 8.0], [20, 5, 5, 20])[:, np.newaxis]
    signal = 10 - 0.7 * pods
    signal[20:30] -= 5  # container events shake the node
    state = form.init(signal[0], np.array([0.2]))
    for second, (now, running) in enumerate(zip(signal, pods, strict=True)):
        hold = np.array([20 <= second < 30])
        state, result = form.update(state, now, running, hold, process_noise=Q)
    assert result.cost == pytest.approx(0.7, abs=0.01)
    assert result.capacity == pytest.approx(10, abs=0.1)


@every_form
def test_a_start_without_knowledge_is_corrected_by_the_first_signals(form: ModuleType) -> None:
    state = form.init(np.array([np.nan]), np.array([np.nan]))
    for running in bursts(200, 1, 9):
        state, result = form.update(state, 10 - 0.7 * running, running, np.zeros(1, dtype=bool), process_noise=Q)
    assert result.cost == pytest.approx(0.7, abs=1e-4)
    assert result.capacity == pytest.approx(10, abs=1e-3)


@every_form
def test_capacity_and_cost_follow_a_workload_that_changes(form: ModuleType) -> None:
    pods = bursts(1200, 10, 10)
    cost = np.where(np.arange(1200) < 400, 0.7, 1.1)[:, np.newaxis]
    result = fold(form, 20 - cost * pods, pods)[-1]
    assert result.cost == pytest.approx(1.1, abs=0.05)


def test_large_process_noise_makes_the_joint_form_oscillate_and_small_does_not() -> None:
    pods = bursts(900, 40, 11)
    signal = 10 - 0.7 * pods + 0.1 * np.random.default_rng(12).standard_normal(pods.shape)
    spread = {q: np.std([e.cost for e in fold(kalman_joint, signal, pods, noise=q)][300:]) for q in (1e-4, 1e-1)}
    assert spread[1e-4] < 0.5 * spread[1e-1]


def test_dual_learns_cost_and_capacity_from_one_change_of_pods() -> None:
    pods = np.repeat([4.0, 6.0], [10, 3])[:, np.newaxis]
    result = fold(kalman_dual, 10 - 0.7 * pods, pods)[-1]
    assert result.cost == pytest.approx(0.7, abs=0.01)
    assert result.capacity == pytest.approx(10, abs=0.1)


@pytest.mark.cases
@every_form
@pytest.mark.parametrize("groups", [2, 5, 37])
def test_grouping_nodes_never_changes_a_bit_of_any_estimate(form: ModuleType, groups: int) -> None:
    rng = np.random.default_rng(groups)
    pods = bursts(60, 37, 13)
    signal = np.maximum(6 - 0.7 * pods + 0.1 * rng.standard_normal(pods.shape), 0)
    whole = fold(form, signal, pods)
    for rows in np.array_split(rng.permutation(37), groups):
        for expected, result in zip(whole, fold(form, signal[:, rows], pods[:, rows]), strict=True):
            for left, right in zip(expected, result, strict=True):
                np.testing.assert_array_equal(left[rows], right)
