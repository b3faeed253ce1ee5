"""Three ways to merge two subspaces agree; three orders to merge many agree untruncated and are ranked truncated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.model import subspace
from processors.reject import merge
from tests.support.processors import merging

Array = NDArray[np.float64]

often = settings(deadline=None, max_examples=40, derandomize=True)


def of_columns(samples: Array) -> subspace.State:
    basis, sigma, _ = np.linalg.svd(samples, full_matrices=False)
    return subspace.State(basis, sigma)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6), st.floats(0, 3), st.floats(0, 3))
@often
def test_basic_triangular_and_fast_merges_agree_for_any_weights_and_ranks(
    seed: int, first: int, second: int, one_weight: float, other_weight: float
) -> None:
    rng = np.random.default_rng(seed)
    left, right = of_columns(rng.random((4, 6, first))), of_columns(rng.random((4, 6, second)))
    weights, most = (one_weight, other_weight), min(6, first + second)
    for rank in range(1, most + 1):
        basic = subspace.merge_basic(left, right, weights=weights, rank=rank)
        for way in (merging.qr, subspace.merge_fast):
            merged = way(left, right, weights=weights, rank=rank)
            np.testing.assert_allclose(merged.sigma, basic.sigma, atol=5e-14)
            gram = merged.basis.transpose(0, 2, 1) @ merged.basis
            np.testing.assert_allclose(gram, np.broadcast_to(np.eye(rank), gram.shape), atol=5e-14)
            if rank == most:
                moment = subspace.moment(basic)
                np.testing.assert_allclose(subspace.moment(merged), moment, atol=5e-14 * max(1, moment.max()))


def sites(seed: int, nodes: int, rank: int) -> tuple[subspace.State, subspace.State]:
    """Return what nodes with alike, not equal, usage know, and the answer of all samples together."""
    rng = np.random.default_rng(seed)
    decay = 0.6 ** np.arange(6)
    common = np.linalg.qr(rng.standard_normal((6, 6))).Q * decay
    own = common + 0.5 * decay * rng.standard_normal((nodes, 6, 6)) / 6**0.5
    columns = own @ rng.standard_normal((nodes, 6, 100))
    present = of_columns(columns)
    offline = of_columns(columns.transpose(1, 0, 2).reshape(1, 6, -1))
    return subspace.State(present.basis[:, :, :rank], present.sigma[:, :rank]), offline


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 64])
def test_untruncated_every_order_is_the_offline_answer(nodes: int) -> None:
    present, offline = sites(1, nodes, 6)
    for order in (merging.sequential, merge.tree, merging.flat):
        merged = order(present, rank=6)
        assert merged.sigma.shape == (1, 6)
        np.testing.assert_allclose(merged.sigma, offline.sigma, rtol=1e-13)
        np.testing.assert_allclose(subspace.moment(merged), subspace.moment(offline), rtol=1e-12, atol=1e-11)


@pytest.mark.slow
def test_truncated_all_underrate_the_first_strength_the_tree_most_and_one_decomposition_least() -> None:
    errors, angles = [], []
    for seed in range(20):
        present, offline = sites(seed, 64, 3)
        merged = [order(present, rank=3) for order in (merging.sequential, merge.tree, merging.flat)]
        errors.append([1 - each.sigma[0, 0] / offline.sigma[0, 0] for each in merged])
        cosines = [abs(each.basis[0, :, 0] @ offline.basis[0, :, 0]) for each in merged]
        angles.append(np.degrees(np.arccos(np.minimum(cosines, 1.0))))
    sequential, tree, flat = np.transpose(errors)
    assert (flat > 0).all()
    assert (flat < sequential).all()
    assert (sequential < tree).all()
    np.testing.assert_allclose(np.mean(errors, axis=0), [1.3e-3, 2.5e-3, 1.1e-3], rtol=0.2)
    assert np.mean(angles, axis=0).argmin() == 2
    assert np.max(angles) < 1.0


def test_directions_beyond_a_rank_which_are_zeros_do_not_disturb_a_merge() -> None:
    present, _ = sites(2, 8, 4)
    used = np.arange(4) < np.array([4, 1, 3, 2, 2, 4, 1, 3])[:, np.newaxis]
    masked = subspace.State(np.where(used[:, np.newaxis], present.basis, 0.0), np.where(used, present.sigma, 0.0))
    left, right = (subspace.State(masked.basis[rows], masked.sigma[rows]) for rows in (slice(0, 4), slice(4, 8)))
    moments = subspace.moment(left) + subspace.moment(right)
    for way in (merging.qr, subspace.merge_fast):
        merged = way(left, right, weights=(1, 1), rank=6)
        np.testing.assert_allclose(subspace.moment(merged), moments, atol=1e-13 * moments.max())
