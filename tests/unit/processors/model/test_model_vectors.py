"""Numbers that were worked out elsewhere, and streams against the offline answer."""

import numpy as np
import pytest
from numpy.typing import NDArray

from processors.model import capacity_signal, direction, second_moment, subspace

Array = NDArray[np.float64]

MOMENT = np.array([[[0.5, 0.1], [0.1, 0.2]]])
TAU = 10.0


def test_first_vector_direction_and_signal_of_a_given_moment() -> None:
    result = direction.leading(MOMENT)
    assert result.size[0] == pytest.approx(0.7282015956, abs=1e-10)
    assert result.size[0] ** 2 == pytest.approx(0.5302775638, abs=1e-10)
    np.testing.assert_allclose(result.vector[0], [0.9570920265, 0.2897841487], atol=1e-10)
    assert result.gap[0] == pytest.approx(0.3200633929, abs=1e-10)
    usage = np.array([[0.30, 0.55]])
    signal = capacity_signal.update(result, usage, headroom=np.zeros(2), max_pods=110)
    assert signal.k[0] == pytest.approx(1.0043676494, abs=1e-10)
    assert signal.binding[0] == 0


def test_second_vector_one_batch_merged_three_to_one_by_both_local_models() -> None:
    batch = np.array([[[0.8, 0.1], [0.6, 0.3]]])
    elapsed = np.array([-TAU * np.log(0.75)])  # weighs the batch 1/4
    moment = second_moment.update(second_moment.State(MOMENT), batch, elapsed, tau=TAU)[1]
    np.testing.assert_allclose(moment[0], [[0.5, 0.1075], [0.1075, 0.1625]], atol=1e-15)
    result = direction.leading(moment)
    assert result.size[0] ** 2 == pytest.approx(0.5313320144, abs=1e-10)
    assert result.size[0] == pytest.approx(0.7289252461, abs=1e-10)
    np.testing.assert_allclose(result.vector[0], [0.9600531609, 0.2798176697], atol=1e-10)
    values, vectors = np.linalg.eigh(MOMENT)
    start = subspace.State(vectors[:, :, ::-1], np.sqrt(values[:, ::-1]))
    state, merged = subspace.update(start, batch, elapsed, tau=TAU)
    np.testing.assert_allclose(state.sigma[0], [0.7289252461, 0.3621712103], atol=1e-10)
    np.testing.assert_allclose(merged, moment, atol=1e-15)


def test_third_vector_merging_two_disjoint_workloads_halves_the_first_eigenvalue() -> None:
    """CARICO dissertation, eq 3.9, promises at least the smaller one: 10."""
    first = np.array([[[1.0, 0.0]] * 10])
    left = subspace.State(np.eye(2)[np.newaxis], np.array([[10**0.5, 0.0]]))
    other = subspace.State(np.eye(2)[:, ::-1][np.newaxis], np.array([[10**0.5, 0.0]]))
    assert np.array_equal(subspace.moment(left)[0].round(12), first[0].T @ first[0])
    merged = subspace.merge_fast(left, other, weights=(0.5**0.5, 0.5**0.5), rank=2)
    np.testing.assert_allclose(merged.sigma[0] ** 2, [5, 5], atol=1e-14)


def power_law(alpha: float, *, features: int = 40, samples: int = 2000, seed: int = 7) -> Array:
    """Return centred samples (samples, features) with singular values i^-alpha."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((samples, features))).Q
    right = np.linalg.qr(rng.standard_normal((features, features))).Q
    data: Array = left * np.arange(1, features + 1) ** -alpha @ right
    data -= data.mean(axis=0)
    return data


def streamed(data: Array, rank: int) -> subspace.State:
    """Feed blocks of twice the rank, each weighed 1/n: nothing is forgotten, only truncated."""
    state = subspace.init(1, data.shape[1], rank=rank)
    for number, block in enumerate(np.split(data, len(data) // (2 * rank)), start=1):
        elapsed = np.inf if number == 1 else -TAU * np.log(1 - 1 / number)
        state, _ = subspace.update(state, block[np.newaxis], np.array([elapsed]), tau=TAU)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "rank", "ratio", "degrees"), [(0.5, 10, 1.03, 3.0), (1.0, 10, 1.03, 0.3), (2.0, 5, 1.001, 0.1)]
)
def test_a_streamed_subspace_is_nearly_that_of_offline_principal_components(
    alpha: float, rank: int, ratio: float, degrees: float
) -> None:
    data = power_law(alpha)
    state = streamed(data, rank)
    basis = state.basis[0]
    _, strength, offline = np.linalg.svd(data, full_matrices=False)
    residual = np.sum((data - data @ basis @ basis.T) ** 2)
    assert residual <= ratio * np.sum(strength[rank:] ** 2)
    overlap = np.linalg.svd(basis[:, :3].T @ offline[:3].T)[1]
    assert np.degrees(np.arccos(min(overlap.min(), 1.0))) < degrees
    assert state.sigma[0, 0] * len(data) ** 0.5 == pytest.approx(strength[0], rel=4e-4)
