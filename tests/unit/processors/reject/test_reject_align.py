"""A direction keeps its sign and its history when a decomposition flips or swaps it, and loses it when it turns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.reject import align

Array = NDArray[np.float64]

SEEDS = st.integers(0, 2**32 - 1)
often = settings(deadline=None, max_examples=60, derandomize=True)


def orthonormal(seed: int, nodes: int, metrics: int, width: int) -> Array:
    rng = np.random.default_rng(seed)
    return np.asarray(np.linalg.qr(rng.standard_normal((nodes, metrics, width))).Q)


@given(SEEDS)
@often
def test_flipped_and_swapped_directions_are_found_again_with_their_signs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = orthonormal(seed, 3, 6, 4)
    order = np.stack([rng.permutation(4) for _ in range(3)])
    now = np.take_along_axis(before, order[:, np.newaxis], axis=2) * rng.choice([-1, 1], (3, 1, 4))
    result = align.match(before, now, rotation=align.ONE_TO_ONE)
    assert np.array_equal(result.source, order)
    assert result.kept.all()
    assert np.array_equal(result.basis, np.take_along_axis(before, order[:, np.newaxis], axis=2))


@given(SEEDS, st.floats(0, 2))
@often
def test_no_two_directions_are_given_one_history(seed: int, turn: float) -> None:
    rng = np.random.default_rng(seed)
    before = orthonormal(seed, 20, 6, 5)
    now = np.linalg.qr(before + turn * rng.standard_normal(before.shape)).Q
    result = align.match(before, now, rotation=align.ONE_TO_ONE)
    for source, kept in zip(result.source, result.kept, strict=True):
        assert len(set(source[kept])) == np.count_nonzero(kept)


@pytest.mark.parametrize(("degrees", "kept"), [(0, True), (30, True), (44, True), (46, False), (80, False)])
def test_a_direction_is_new_once_it_turned_by_more_than_45_degrees(degrees: float, kept: bool) -> None:
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    now = np.array([[[-cosine], [0.0], [-sine]]])
    result = align.match(np.eye(3, 1)[np.newaxis], now, rotation=align.ONE_TO_ONE)
    assert result.kept.tolist() == [[kept]]
    assert result.basis[0, 0, 0] > 0


def test_a_direction_beyond_the_rank_resembles_none() -> None:
    before, now = np.eye(4)[np.newaxis].copy(), np.eye(4)[np.newaxis].copy()
    before[:, :, 3] = 0.0
    now[:, :, 2] = 0.0
    result = align.match(before, now, rotation=align.ONE_TO_ONE)
    assert result.kept.tolist() == [[True, True, False, False]]
    assert np.array_equal(result.basis, now)
