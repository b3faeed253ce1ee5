"""Local and global models: what is missing, what is at rest, and what a cluster adds up to."""

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.model import direction, flat_queue, keyed_sum, second_moment, subspace

Array = NDArray[np.float64]
FOREVER = np.array([np.inf])


def learned(*rows: list[float]) -> Array:
    """Return the second moment of these samples alone."""
    return second_moment.update(second_moment.init(1, len(rows[0])), np.array([rows]), FOREVER, tau=10)[1]


def test_a_sample_with_a_missing_feature_is_left_out_and_the_rest_is_averaged_over_what_is_there() -> None:
    whole = learned([0.2, 0.4], [0.6, 0.8])
    assert np.array_equal(learned([0.2, 0.4], [np.nan, 0.9], [0.6, 0.8]), whole)
    assert whole[0, 0, 1] == pytest.approx((0.2 * 0.4 + 0.6 * 0.8) / 2)


@pytest.mark.parametrize("elapsed", [0.0, 1.0, -1.0])
def test_nothing_known_or_no_time_elapsed_leaves_every_bit_of_the_model(elapsed: float) -> None:
    rng = np.random.default_rng(1)
    batch, later = rng.random((1, 10, 4)), rng.random((1, 10, 4))
    later[:, :, 2] = np.nan if elapsed > 0 else 0.5
    time = np.array([elapsed])
    moment = second_moment.update(second_moment.init(1, 4), batch, FOREVER, tau=10)[0]
    assert np.array_equal(second_moment.update(moment, later, time, tau=10)[1], moment.moment)
    state = subspace.update(subspace.init(1, 4, rank=2), batch, FOREVER, tau=10)[0]
    after, _ = subspace.update(state, later, time, tau=10)
    assert np.array_equal(after.basis, state.basis)
    assert np.array_equal(after.sigma, state.sigma)


def test_the_moment_is_symmetric_to_the_bit_and_forgets_with_its_time_constant() -> None:
    rng = np.random.default_rng(2)
    state = second_moment.init(5, 6)
    for _ in range(20):
        state, moment = second_moment.update(state, rng.random((5, 10, 6)), rng.random(5), tau=10)
    assert np.array_equal(moment, moment.transpose(0, 2, 1))
    faded = second_moment.update(state, np.zeros((5, 10, 6)), np.full(5, 10 * np.log(2)), tau=10)[1]
    np.testing.assert_allclose(faded, moment / 2, rtol=1e-15)


def test_one_long_gap_forgets_as_much_as_the_seconds_it_is_made_of() -> None:
    state = second_moment.State(learned([0.3, 0.9]))
    idle = np.zeros((1, 10, 2))
    gap = second_moment.update(state, idle, np.array([7.0]), tau=10)[1]
    for _ in range(7):
        state, moment = second_moment.update(state, idle, np.ones(1), tau=10)
    np.testing.assert_allclose(gap, moment, rtol=1e-14)


def test_a_rank_that_the_features_do_not_have_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="rank is 3 directions; 2 features"):
        subspace.init(1, 2, rank=3)


@pytest.mark.parametrize("given", [1, 2, 5])
def test_a_fast_merge_that_adds_nothing_new_keeps_the_basis_orthonormal(given: int) -> None:
    rng = np.random.default_rng(3)
    batch = rng.random((1, given, 5))
    state = subspace.update(subspace.init(1, 5, rank=3), batch, FOREVER, tau=10)[0]
    same = state
    for _ in range(5):
        same = subspace.merge_fast(same, state, weights=(0.6, 0.8), rank=3)
        np.testing.assert_allclose(same.basis[0].T @ same.basis[0], np.eye(3), atol=1e-14)
        np.testing.assert_allclose(subspace.moment(same), subspace.moment(state), atol=1e-14)


def test_a_node_without_usage_has_no_direction_and_a_missing_model_none_known() -> None:
    moment = np.zeros((2, 4, 4))
    moment[1, 0, 3] = np.nan
    result = direction.leading(moment)
    assert (result.size[0], result.gap[0], result.explained[0]) == (0, 1, 0)
    assert np.array_equal(result.vector[0], np.full(4, 0.5))
    assert np.isnan(np.concatenate([result.size[1:], result.gap[1:], result.explained[1:], result.vector[1]])).all()


def test_the_direction_of_one_workload_is_that_workload_and_explains_all() -> None:
    load = np.array([0.3, 0.0, 0.4])
    result = direction.leading(learned(load.tolist(), load.tolist()))
    assert result.size[0] == pytest.approx(0.5)
    np.testing.assert_allclose(result.size[0] * result.vector[0], load, atol=1e-15)
    assert (result.vector >= 0).all()
    assert result.gap[0] == pytest.approx(0, abs=1e-15)
    assert result.explained[0] == pytest.approx(1)


@pytest.mark.parametrize("diagonal", [0.0, -0.25])
def test_what_is_no_second_moment_is_explained_by_a_share_all_the_same(diagonal: float) -> None:
    """A node that models itself may tell any numbers."""
    result = direction.leading(np.array([[[diagonal, 0.5], [0.5, diagonal]]]))
    assert result.explained[0] == 1
    assert np.isfinite([*result.size, *result.gap, *result.vector[0]]).all()


def test_one_feature_has_a_direction_and_no_second() -> None:
    result = direction.leading(np.array([[[0.25]]]))
    assert (result.size[0], result.vector[0, 0], result.gap[0], result.explained[0]) == (0.5, 1, 0, 1)


def test_a_dead_node_is_not_in_the_sum_whatever_it_left_behind() -> None:
    moments, sizes = np.random.default_rng(4).random((3, 2, 2)), np.ones((3, 2))
    moments[1] = np.nan
    alive = np.array([True, False, True])
    assert np.array_equal(keyed_sum.total(moments, sizes, alive), moments[0] + moments[2])
    assert np.array_equal(keyed_sum.total(moments, sizes, np.zeros(3, dtype=bool)), np.zeros((2, 2)))


def test_the_sum_in_absolute_units_tells_a_large_machine_from_a_small_one() -> None:
    moments = np.concatenate((learned([0.5, 0.1]), learned([0.5, 0.1])))
    sizes = np.array([[64.0, 1.0], [4.0, 1.0]])
    mean = keyed_sum.total(moments, sizes, np.ones(2, dtype=bool)) / 2
    assert np.array_equal(mean, mean.T)
    seen = direction.leading(keyed_sum.congruent(mean, sizes))
    load = seen.size * seen.vector[:, 0]
    assert load[1] / load[0] == pytest.approx(16, rel=0.01)
    alone = keyed_sum.total(moments[:1], sizes[:1], np.ones(1, dtype=bool))
    np.testing.assert_allclose(keyed_sum.congruent(alone, sizes[:1]), moments[:1], rtol=1e-15)


@pytest.mark.parametrize("features", [1, 2, 6, 64])
def test_a_triangle_is_all_of_a_symmetric_matrix(features: int) -> None:
    half = np.random.default_rng(5).random((features, features))
    matrix = half + half.T
    values = keyed_sum.triangle(matrix).tolist()
    assert len(values) == features * (features + 1) // 2
    assert values[:features] == matrix[0].tolist()
    assert np.array_equal(keyed_sum.from_triangle(values), matrix)


@pytest.mark.parametrize("count", [2, 4, 5])
def test_values_that_fill_no_triangle_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} values are no triangle"):
        keyed_sum.from_triangle([0.0] * count)


def local(*loads: list[float]) -> subspace.State:
    batch = np.array(loads)[:, np.newaxis]
    start = subspace.init(len(loads), len(loads[0]), rank=2)
    return subspace.update(start, batch, np.full(len(loads), np.inf), tau=10)[0]


def test_the_queue_weighs_old_against_new_by_the_number_of_nodes() -> None:
    first, second = local([0.6, 0.0]), local([0.0, 0.8])
    state = flat_queue.update(subspace.init(1, 2, rank=2), first, nodes=1)
    np.testing.assert_allclose(flat_queue.moment(state), np.diag([0.36, 0.0]), atol=1e-15)
    state = flat_queue.update(state, second, nodes=4)
    np.testing.assert_allclose(flat_queue.moment(state), np.diag([0.36 * 3 / 4, 0.64 / 4]), atol=1e-15)
    with pytest.raises(ValueError, match="nodes is 0"):
        flat_queue.update(state, second, nodes=0)


def test_the_queue_counts_a_node_by_its_arrivals_and_the_keyed_sum_counts_it_once() -> None:
    cpu, memory = [0.5, 0.0], [0.0, 0.5]
    state = subspace.init(1, 2, rank=2)
    for _ in range(200):
        state = flat_queue.update(state, local(*[cpu] * 5, memory), nodes=20)
    queued = flat_queue.moment(state)
    assert queued[0, 0] / np.trace(queued) == pytest.approx(5 / 6, abs=0.05)
    last = np.concatenate((learned(cpu), learned(memory)))
    summed = keyed_sum.total(last, np.ones((2, 2)), np.ones(2, dtype=bool))
    assert summed[0, 0] / np.trace(summed) == 0.5
