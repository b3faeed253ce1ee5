"""The rank grows while the weakest direction matters and shrinks when it does not."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.reject import rank

Array = NDArray[np.float64]
Ranks = NDArray[np.int64]


def adjusted(basis: Array, *sigma: float, most: int = 4) -> tuple[Array, Array, int]:
    """Adjust one node whose rank is the number of strengths given, in four columns."""
    strength = np.zeros((1, 4))
    strength[0, : len(sigma)] = sigma
    used = np.where(np.arange(4) < len(sigma), basis, 0.0)[np.newaxis]
    basis, strength, ranks = rank.adjust(
        used, strength, np.array([len(sigma)]), low=0.01, high=0.1, most=np.array([most])
    )
    return basis[0], strength[0], int(ranks[0])


AXES = np.eye(6, 4)


def test_a_weakest_direction_above_a_tenth_of_the_sum_brings_the_next_axis_without_strength() -> None:
    basis, sigma, ranks = adjusted(AXES, 5, 3, 1)
    assert ranks == 4
    assert np.array_equal(basis, AXES)
    assert sigma.tolist() == [5, 3, 1, 0]


def test_a_weakest_direction_below_a_hundredth_of_the_sum_is_dropped() -> None:
    basis, sigma, ranks = adjusted(AXES, 5, 3, 0.05)
    assert ranks == 2
    assert np.array_equal(basis, np.where(np.arange(4) < 2, AXES, 0.0))
    assert sigma.tolist() == [5, 3, 0, 0]


def test_between_the_two_and_at_both_limits_the_rank_stays() -> None:
    assert adjusted(AXES, 5, 3, 0.5)[2] == 3
    assert adjusted(AXES, 5, 4, 1)[2] == 3
    assert adjusted(AXES, 98, 1, 1)[2] == 3


def test_shares_are_of_singular_values_and_not_of_their_squares() -> None:
    assert adjusted(AXES, 10, 0.5)[2] == 2  # 4.8 % of the sum, 0.2 % of the squares


def test_the_rank_stays_between_one_and_the_most() -> None:
    assert adjusted(AXES, 5, 3, 1, most=3)[2] == 3
    assert adjusted(AXES, 5)[2] == 2
    assert adjusted(AXES, 5, 4, 4, 4, most=9)[2] == 4


def test_without_a_new_sample_the_rank_stays() -> None:
    assert adjusted(AXES, 5, 3, 1, most=0)[2] == 3
    assert adjusted(AXES, 5, 3, 0.05, most=0)[2] == 3


def test_without_any_strength_the_rank_stays() -> None:
    assert adjusted(AXES, 0, 0)[2] == 2


def test_an_axis_within_the_directions_gives_way_to_one_that_is_not() -> None:
    basis, _, ranks = adjusted(np.eye(6)[:, [2, 0, 1, 3]], 1, 1)
    assert ranks == 3
    assert np.array_equal(np.abs(basis[:, 2]), np.eye(6)[1])  # the third axis is taken: the first that is left whole


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.floats(1e-5, 1))
@settings(deadline=None, max_examples=60, derandomize=True)
def test_directions_stay_orthonormal_however_near_the_new_axis_lies(seed: int, metrics: int, tilt: float) -> None:
    rng = np.random.default_rng(seed)
    near = np.eye(metrics)[:, ::-1] + tilt * rng.standard_normal((5, metrics, metrics))
    basis = np.linalg.qr(near).Q
    ranks: Ranks = rng.integers(1, metrics, 5)
    used = np.arange(metrics) < ranks[:, np.newaxis]
    grown, sigma, now = rank.adjust(
        np.where(used[:, np.newaxis], basis, 0.0),
        np.where(used, 1.0, 0.0),
        ranks,
        low=0.01,
        high=0.1,
        most=np.full(5, 9),
    )
    assert np.array_equal(now, ranks + 1)
    expected = np.eye(metrics) * (np.arange(metrics) < now[:, np.newaxis])[:, np.newaxis]
    np.testing.assert_allclose(grown.transpose(0, 2, 1) @ grown, expected, atol=1e-12)
    assert np.array_equal(np.count_nonzero(sigma, axis=1), ranks)
