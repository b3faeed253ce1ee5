"""Directions follow the decayed scatter exactly, whatever is missing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.reject import fpca, rank

Array = NDArray[np.float64]

often = settings(deadline=None, max_examples=30, derandomize=True)


def streamed(blocks: Array, *, width: int, gamma: float, solver: fpca.Solver = "eigh") -> fpca.State:
    """Feed (blocks, nodes, samples, metrics)."""
    state = fpca.init(blocks.shape[1], blocks.shape[3], width=width, rank=width)
    for block in blocks:
        state = fpca.update(state, block, gamma=gamma, solver=solver)
    return state


def scatter(state: fpca.State) -> Array:
    amplitude = state.basis * state.sigma[:, np.newaxis]
    return np.asarray(amplitude @ amplitude.transpose(0, 2, 1))


def restless(seed: int, blocks: int, nodes: int, metrics: int, samples: int = 10) -> Array:
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((nodes, metrics, metrics)) * 0.7 ** np.arange(metrics)
    level = rng.uniform(0, 3, (blocks, nodes, 1, metrics))
    data: Array = level + rng.standard_normal((blocks, nodes, samples, metrics)) @ mix.transpose(0, 2, 1)
    return data


@given(
    st.integers(0, 2**32 - 1), st.floats(0, 1), st.integers(1, 6), st.integers(1, 12), st.sampled_from(["eigh", "svd"])
)
@often
def test_at_full_rank_the_stream_is_the_decayed_scatter_around_the_decayed_mean(
    seed: int, gamma: float, metrics: int, samples: int, solver: fpca.Solver
) -> None:
    blocks = restless(seed, 7, 1, metrics, samples)
    state = streamed(blocks, width=metrics, gamma=gamma, solver=solver)
    weight = np.repeat(gamma ** (2.0 * np.arange(6, -1, -1)), samples)
    rows = blocks[:, 0].reshape(-1, metrics)
    mean = weight @ rows / weight.sum()
    offline = (rows - mean).T @ (weight[:, np.newaxis] * (rows - mean))
    np.testing.assert_allclose(state.mean[0], mean, atol=1e-13)
    np.testing.assert_allclose(state.weight[0], weight.sum(), rtol=1e-13)
    np.testing.assert_allclose(scatter(state)[0], offline, atol=1e-13 * max(1.0, np.abs(offline).max()))


def test_truncated_a_block_is_the_singular_value_decomposition_of_what_was_and_what_came() -> None:
    blocks = restless(3, 5, 4, 6)
    before = streamed(blocks[:-1], width=3, gamma=0.9)
    after = fpca.update(before, blocks[-1], gamma=0.9)
    for node in range(4):
        block, mean = blocks[-1, node], blocks[-1, node].mean(axis=0)
        weight = 0.81 * before.weight[node, 0]
        step = np.sqrt(weight * 10 / (weight + 10)) * (mean - before.mean[node])
        both = np.column_stack((0.9 * before.basis[node] * before.sigma[node], (block - mean).T, step))
        basis, sigma, _ = np.linalg.svd(both)
        np.testing.assert_allclose(after.sigma[node], sigma[:3], rtol=1e-13)
        np.testing.assert_allclose(np.abs(np.sum(after.basis[node] * basis[:, :3], axis=0)), 1, atol=1e-13)


def test_squaring_keeps_eleven_digits_of_a_direction_that_the_rank_rule_keeps() -> None:
    rng = np.random.default_rng(4)
    left = np.linalg.qr(rng.standard_normal((200, 40, 15))).Q
    right = np.linalg.qr(rng.standard_normal((200, 15, 15))).Q
    blocks = ((left - left.mean(axis=1, keepdims=True)) * np.geomspace(1, 1e-2, 15) @ right)[np.newaxis]
    squared, exact = (streamed(blocks, width=15, gamma=1, solver=solver) for solver in ("eigh", "svd"))
    np.testing.assert_allclose(squared.sigma[:, 0], exact.sigma[:, 0], rtol=1e-14)
    np.testing.assert_allclose(squared.sigma, exact.sigma, rtol=1e-11)


@pytest.mark.parametrize(("gamma", "predicted"), [(0.9, 83.3), (0.99, 796.0)])
def test_strength_settles_where_forgetting_and_variance_balance(gamma: float, predicted: float) -> None:
    """sigma_1^2 = b lambda / (1 - gamma^2); the variance is chosen so that this is the predicted figure."""
    variance = predicted * (1 - gamma**2) / 10
    rng = np.random.default_rng(5)
    axes = np.sqrt([variance, 0.1 * variance])
    blocks = rng.standard_normal((1200, 20, 10, 2)) * axes
    state = streamed(blocks, width=2, gamma=gamma)
    assert np.mean(state.sigma[:, 0] ** 2) == pytest.approx(predicted, rel=0.05)


@pytest.mark.parametrize(("alpha", "ratio", "degrees"), [(0.5, 1.05, 6.0), (1.0, 1.05, 1.0), (2.0, 1.05, 0.5)])
def test_with_an_adaptive_rank_directions_are_nearly_the_offline_principal_components(
    alpha: float, ratio: float, degrees: float
) -> None:
    rng = np.random.default_rng(7)
    right = np.linalg.qr(rng.standard_normal((15, 15))).Q
    data = 0.4 + rng.standard_normal((2000, 15)) * np.arange(1, 16) ** -alpha @ right
    state = fpca.init(1, 15, width=10, rank=4)
    for block in np.split(data, 100):
        state = fpca.update(state, block[np.newaxis], gamma=1)
        basis, sigma, ranks = rank.adjust(state.basis, state.sigma, state.rank, low=0.01, high=0.1, most=np.array([20]))
        state = state._replace(basis=basis, sigma=sigma, rank=ranks)
    used, centred = state.rank[0], data - data.mean(axis=0)
    _, strength, offline = np.linalg.svd(centred, full_matrices=False)
    result = state.basis[0, :, :used]
    assert np.sum((centred - centred @ result @ result.T) ** 2) <= ratio * np.sum(strength[used:] ** 2)
    overlap = np.linalg.svd(result[:, :3].T @ offline[:3].T)[1]
    assert np.degrees(np.arccos(min(overlap.min(), 1.0))) < degrees
    assert state.sigma[0, 0] == pytest.approx(strength[0], rel=1e-3)


def test_without_forgetting_and_truncation_the_order_of_blocks_does_not_matter() -> None:
    blocks = restless(6, 20, 3, 6)
    order = np.random.default_rng(6).permutation(20)
    left, right = (streamed(each, width=6, gamma=1) for each in (blocks, blocks[order]))
    np.testing.assert_allclose(scatter(left), scatter(right), rtol=1e-12, atol=1e-11)


def test_truncated_it_does() -> None:
    blocks = restless(6, 20, 3, 6)
    left, right = (streamed(each, width=2, gamma=1) for each in (blocks, blocks[::-1]))
    assert np.abs(scatter(left) - scatter(right)).max() > 1e-3 * np.abs(scatter(left)).max()


def test_a_missing_metric_adds_nothing_and_hides_no_other() -> None:
    blocks = restless(7, 6, 2, 4)
    gappy = blocks.copy()
    gappy[:, :, :, 2] = np.nan
    state = streamed(gappy, width=4, gamma=0.9)
    others = [0, 1, 3]
    present = streamed(blocks[..., others], width=3, gamma=0.9)
    np.testing.assert_allclose(scatter(state)[:, others][:, :, others], scatter(present), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(scatter(state)[:, 2], 0.0, atol=1e-13)
    assert not state.mean[:, 2].any()
    assert not state.weight[:, 2].any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_what_is_no_believable_number_is_missing(value: float) -> None:
    blocks = restless(8, 4, 2, 3)
    bad, missing = blocks.copy(), blocks.copy()
    bad[2, :, 4, 1], missing[2, :, 4, 1] = value, np.nan
    for left, right in zip(streamed(bad, width=3, gamma=0.9), streamed(missing, width=3, gamma=0.9), strict=True):
        assert np.array_equal(left, right)


def test_the_largest_numbers_believed_have_a_finite_strength() -> None:
    block = np.array([[[1e100, -1e100], [-1e100, 1e100], [1e100, 0.0]]])
    state = fpca.update(fpca.init(1, 2, width=2, rank=2), block, gamma=1)
    assert np.isfinite(state.sigma).all()
    assert state.sigma[0, 0] > 1e100


def test_a_node_of_which_nothing_is_known_keeps_its_state_and_disturbs_no_other() -> None:
    blocks = restless(9, 4, 3, 3)
    state = streamed(blocks, width=3, gamma=0.9)
    block = blocks[0].copy()
    block[1] = np.nan
    after, alone = fpca.update(state, block, gamma=0.9), fpca.update(state, blocks[0], gamma=0.9)
    for was, now, whole in zip(state, after, alone, strict=True):
        assert np.array_equal(now[1], was[1])
        assert np.array_equal(now[[0, 2]], whole[[0, 2]])


@pytest.mark.parametrize("level", [0.0, 0.3, 2.7])
def test_what_never_varies_has_no_strength_and_keeps_the_axes(level: float) -> None:
    state = streamed(np.full((50, 1, 10, 3), level), width=2, gamma=0.9)
    assert not state.sigma.any()
    assert np.array_equal(state.basis[0], np.eye(3, 2))
    np.testing.assert_allclose(state.mean[0], level)


def test_a_projection_is_around_the_mean_and_a_missing_metric_counts_as_it() -> None:
    state = streamed(restless(10, 5, 1, 3), width=3, gamma=0.9)
    assert not fpca.project(state, state.mean).any()
    usage = state.mean + 1.0
    np.testing.assert_allclose(fpca.project(state, usage)[0], state.basis[0].sum(axis=0))
    usage[0, 1] = np.nan
    np.testing.assert_allclose(fpca.project(state, usage)[0], state.basis[0, 0] + state.basis[0, 2])
    assert np.isnan(fpca.project(state, np.full((1, 3), np.nan))).all()


@pytest.mark.parametrize(("width", "rank"), [(5, 2), (3, 4), (3, 0)])
def test_more_directions_than_there_can_be_are_refused(width: int, rank: int) -> None:
    with pytest.raises(ValueError, match="4 metrics"):
        fpca.init(1, 4, width=width, rank=rank)
