"""Laws of the model and of the signal, and the law of them all: grouping nodes never changes a result."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.model import capacity_signal, direction, keyed_sum, second_moment, subspace

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

TAU = 10.0
MAX_PODS = 110
SEEDS = st.integers(0, 2**32 - 1)
often = settings(deadline=None, max_examples=40, derandomize=True)


def of_columns(samples: Array) -> subspace.State:
    """Return the full decomposition of (nodes, features, samples)."""
    basis, sigma, _ = np.linalg.svd(samples, full_matrices=False)
    return subspace.State(basis, sigma)


def gram(samples: Array) -> Array:
    return np.asarray(samples @ samples.transpose(0, 2, 1))


def usage_moment(rng: np.random.Generator, nodes: int, features: int) -> Array:
    return gram(rng.random((nodes, features, 10)) * rng.random((nodes, features, 1))) / 10


def test_p1_a_full_rank_merge_is_the_decomposition_of_both_together() -> None:
    left, right = np.random.default_rng(1).random((2, 50, 6, 9))
    merged = subspace.merge_fast(of_columns(left), of_columns(right), weights=(1, 1), rank=6)
    np.testing.assert_allclose(subspace.moment(merged), gram(left) + gram(right), atol=6e-14)
    offline = np.linalg.svd(np.concatenate((left, right), axis=2), compute_uv=False)
    np.testing.assert_allclose(merged.sigma, offline, atol=6e-14)


@given(SEEDS, st.integers(1, 6), st.integers(1, 6), st.floats(0, 3), st.floats(0, 3))
@often
def test_p2_the_fast_merge_is_the_basic_one_for_any_weights_and_ranks(
    seed: int, first: int, second: int, one_weight: float, other_weight: float
) -> None:
    rng = np.random.default_rng(seed)
    left, right = of_columns(rng.random((4, 6, first))), of_columns(rng.random((4, 6, second)))
    for rank in range(1, min(6, first + second) + 1):
        fast = subspace.merge_fast(left, right, weights=(one_weight, other_weight), rank=rank)
        basic = subspace.merge_basic(left, right, weights=(one_weight, other_weight), rank=rank)
        np.testing.assert_allclose(fast.sigma, basic.sigma, atol=5e-14)
        if rank == min(6, first + second):
            moment = subspace.moment(basic)
            np.testing.assert_allclose(subspace.moment(fast), moment, atol=5e-14 * max(1, moment.max()))


@pytest.mark.slow
def test_p3_the_second_moment_is_the_untruncated_merge() -> None:
    rng = np.random.default_rng(3)
    moment, full = second_moment.init(64, 6), subspace.init(64, 6, rank=6)
    for _ in range(600):
        batch, elapsed = rng.random((64, 10, 6)), rng.random(64) * 2
        moment, plain = second_moment.update(moment, batch, elapsed, tau=TAU)
        full, merged = subspace.update(full, batch, elapsed, tau=TAU)
    error = np.linalg.norm(plain - merged, axis=(1, 2)) / np.linalg.norm(plain, axis=(1, 2))
    assert error.max() < 2e-14  # ten steps of memory, each with the rounding of one decomposition


def test_p4_the_first_singular_value_survives_squaring() -> None:
    samples = np.random.default_rng(4).random((200, 6, 10))
    size = direction.leading(gram(samples)).size
    np.testing.assert_allclose(size, np.linalg.svd(samples, compute_uv=False)[:, 0], rtol=1e-14)


@given(SEEDS, st.floats(0, 1))
@often
def test_p5_a_merge_has_the_mean_trace_and_at_most_the_mean_first_eigenvalue(seed: int, weight: float) -> None:
    rng = np.random.default_rng(seed)
    left, right = usage_moment(rng, 1, 4), usage_moment(rng, 1, 4)
    merged = (1 - weight) * left + weight * right
    first = [direction.leading(each).size[0] ** 2 for each in (left, right, merged)]
    assert first[2] <= (1 - weight) * first[0] + weight * first[1] + 2e-14 <= max(first[:2]) + 4e-14
    traces = [np.trace(each[0]) for each in (left, right, merged)]
    assert traces[2] == pytest.approx((1 - weight) * traces[0] + weight * traces[1], abs=2e-14)


def test_p6_eigenvalues_of_a_merge_are_not_between_those_of_its_parts() -> None:
    """Counterexamples to CARICO dissertation, eq 3.9: for i = 1 the lower bound fails, for i >= 2 the upper."""
    cpu, memory = np.diag([10.0, 0.0]), np.diag([0.0, 10.0])
    merged = np.linalg.eigvalsh((cpu + memory) / 2)
    assert merged[1] < 10
    assert merged[0] > 0


def test_p7_usage_of_at_most_one_bounds_the_moment_and_what_is_read_off_it() -> None:
    rng = np.random.default_rng(7)
    state = second_moment.init(100, 6)
    scale = rng.integers(0, 2, (100, 1, 6)).astype(np.float64) * np.where(np.arange(100) < 50, 1.0, 0.7)[:, None, None]
    for _ in range(50):
        batch: Array = scale * np.minimum(rng.random((100, 10, 6)) * 2, 1.0)
        state, moment = second_moment.update(state, batch, np.ones(100), tau=TAU)
    result = direction.leading(moment)
    assert ((moment >= 0) & (moment <= 1)).all()
    assert (result.size <= 6**0.5).all()
    assert (result.vector >= 0).all()
    assert ((result.explained >= 0) & (result.explained <= 1) & (result.gap >= 0) & (result.gap <= 1)).all()


@pytest.mark.parametrize("scale", [1.0, 1e-12])
@pytest.mark.parametrize("second", [0.0, 0.5, 0.999, 1 - 1e-6])
def test_the_direction_is_that_of_a_whole_decomposition(second: float, scale: float) -> None:
    """Also where it has entries of mixed sign, as that of a truncated moment may, even perpendicular to ones."""
    rng = np.random.default_rng(8)
    start = rng.standard_normal((50, 5, 5))
    start[0, :, 0] = [1, -1, 2, -2, 0]
    basis = np.linalg.qr(start).Q
    strength = scale * np.array([1.0, second, 0.3 * second, 0.1 * second, 0.0])
    moment = basis * strength @ basis.transpose(0, 2, 1)
    moment = (moment + moment.transpose(0, 2, 1)) / 2
    result = direction.leading(moment)
    np.testing.assert_allclose(np.abs(np.sum(result.vector * basis[:, :, 0], axis=1)), 1.0, rtol=1e-14)
    image = np.einsum("nij,nj->ni", moment, result.vector)
    rounding = 1e-15 / (1 - second)  # turns an entry of zero slightly negative, which counts as zero
    np.testing.assert_allclose(image, result.size[:, np.newaxis] ** 2 * result.vector, atol=2 * rounding * scale)
    np.testing.assert_allclose(np.linalg.norm(result.vector, axis=1), 1.0, rtol=1e-15)


def by_root_mean_square(moment: Array, usage: Array) -> Array:
    """Return the signal (nodes,) with each feature's root mean square in place of the expected workload."""
    roots = np.sqrt(np.diagonal(moment, axis1=1, axis2=2))
    fits: Array = np.clip(((1 - usage) / np.maximum(roots, 1 / MAX_PODS)).min(axis=1), 0.0, MAX_PODS)
    return fits


@given(SEEDS, st.integers(1, 6))
@often
def test_p8_the_root_mean_square_is_never_below_the_expected_workload(seed: int, features: int) -> None:
    rng = np.random.default_rng(seed)
    moment, usage = usage_moment(rng, 8, features), rng.random((8, features))
    result = direction.leading(moment)
    roots = np.sqrt(np.diagonal(moment, axis1=1, axis2=2))
    assert (roots >= result.size[:, np.newaxis] * result.vector - 1e-15).all()
    none = np.zeros(features)
    calm = by_root_mean_square(moment, usage)
    assert (calm <= capacity_signal.update(result, usage, headroom=none, max_pods=MAX_PODS).k * (1 + 1e-13)).all()


def test_p8_both_are_equal_for_a_single_workload() -> None:
    load = np.array([0.5, 0.2, 0.1])
    moment, usage = np.outer(load, load)[np.newaxis], np.array([[0.1, 0.3, 0.2]])
    none = np.zeros(3)
    full = capacity_signal.update(direction.leading(moment), usage, headroom=none, max_pods=MAX_PODS)
    assert by_root_mean_square(moment, usage) == pytest.approx(full.k, rel=1e-13)


@pytest.mark.parametrize("samples", [1, 7, 10, 20])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_p9_a_constant_load_fits_one_over_its_largest_share_for_any_batch_size(samples: int, scale: float) -> None:
    load = scale * np.array([0.4, 0.1])
    batch = np.tile(load, (1, samples, 1))
    moment = second_moment.update(second_moment.init(1, 2), batch, np.array([np.inf]), tau=TAU)[1]
    result = direction.leading(moment)
    signal = capacity_signal.update(result, np.zeros((1, 2)), headroom=np.zeros(2), max_pods=MAX_PODS)
    assert signal.k[0] == pytest.approx(1 / load.max(), rel=1e-14)


@given(SEEDS)
@often
def test_p10_the_signal_is_bounded_and_never_rises_with_usage_or_with_the_moment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    moment, usage, none = usage_moment(rng, 4, 3), rng.random((4, 3)) * 1.2, np.zeros(3)
    moment[0] = 0
    result = direction.leading(moment)
    k = capacity_signal.update(result, usage, headroom=none, max_pods=MAX_PODS).k
    assert ((k >= 0) & (k <= MAX_PODS)).all()
    fuller = usage + rng.random((4, 3)) * 0.1
    assert (capacity_signal.update(result, fuller, headroom=none, max_pods=MAX_PODS).k <= k).all()
    more = moment + usage_moment(rng, 4, 3)
    along = [
        np.sqrt(np.sum(result.vector[:, :, None] * each * result.vector[:, None], axis=(1, 2)))
        for each in (moment, more)
    ]
    less, longer = (result._replace(size=size) for size in along)
    before, after = (capacity_signal.update(each, usage, headroom=none, max_pods=MAX_PODS).k for each in (less, longer))
    assert (after <= before).all()


def test_p11_sequence_tree_and_one_flat_merge_agree_at_full_rank_in_any_order() -> None:
    rng = np.random.default_rng(11)
    samples = rng.random((16, 5, 10)) / 10
    locals_ = [of_columns(each[np.newaxis]) for each in samples]

    def join(left: subspace.State, right: subspace.State) -> subspace.State:
        return subspace.merge_fast(left, right, weights=(1, 1), rank=5)

    sequential = locals_[0]
    for each in locals_[1:]:
        sequential = join(sequential, each)
    tree = [locals_[index] for index in rng.permutation(16)]
    while len(tree) > 1:
        tree = [join(first, other) for first, other in zip(tree[::2], tree[1::2], strict=True)]
    everything = np.concatenate(samples[:, :, rng.permutation(10)], axis=1)[np.newaxis]
    flat = of_columns(everything)
    for merged in (sequential, tree[0]):
        np.testing.assert_allclose(merged.sigma, flat.sigma, atol=2e-15)
        np.testing.assert_allclose(subspace.moment(merged), subspace.moment(flat), atol=2e-15)


def test_p12_duplicates_order_and_rates_of_reports_do_not_change_the_keyed_sum() -> None:
    rng = np.random.default_rng(12)
    final, sizes = usage_moment(rng, 30, 4), rng.random((30, 4)) * 64
    everybody = np.ones(30, dtype=bool)
    sums = []
    for rate in (1, 2, 10):
        last = np.zeros_like(final)
        for node in rng.permutation(np.repeat(np.arange(30), rng.integers(1, rate + 1, 30))):
            last[node] = rng.random((4, 4))
            last[node] = final[node]
        sums.append(keyed_sum.total(last, sizes, everybody))
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])
    scale = sizes[:, :, np.newaxis] * sizes[:, np.newaxis]
    np.testing.assert_allclose(sums[0], np.sum(final * scale, axis=0), rtol=1e-14)


NODES = 37
_rng = np.random.default_rng(13)
BATCHES = _rng.random((4, NODES, 10, 6))
BATCHES[_rng.random(BATCHES.shape) < 0.02] = np.nan
ELAPSED = _rng.random((4, NODES)) * 3


def modelled(rows: Rows) -> Iterator[Array]:
    moment, low = second_moment.init(len(rows), 6), subspace.init(len(rows), 6, rank=3)
    for batch, elapsed in zip(BATCHES, ELAPSED, strict=True):
        moment, full = second_moment.update(moment, batch[rows], elapsed[rows], tau=TAU)
        low, truncated = subspace.update(low, batch[rows], elapsed[rows], tau=TAU)
        yield from (full, truncated, *low, *subspace.merge_fast(low, low, weights=(0.6, 0.8), rank=3))
    yield keyed_sum.congruent(np.full((6, 6), 0.3), ELAPSED[0, rows, np.newaxis] * np.arange(1, 7))


def as_floats(signal: capacity_signal.Signal) -> tuple[Array, Array]:
    return signal.k, signal.binding.astype(np.float64)


def signalled(rows: Rows) -> Iterator[Array]:
    moment = second_moment.update(second_moment.init(len(rows), 6), BATCHES[0, rows], ELAPSED[0, rows], tau=TAU)[1]
    result, usage, none = direction.leading(moment), BATCHES[1, rows, 0], np.zeros(6)
    yield from result
    yield from as_floats(capacity_signal.update(result, usage, headroom=none, max_pods=MAX_PODS))
    yield from as_floats(capacity_signal.reference(result, usage, headroom=none, max_pods=MAX_PODS))


@pytest.mark.parametrize("run", [modelled, signalled])
@pytest.mark.parametrize("groups", [2, 5, NODES])
def test_grouping_nodes_never_changes_a_bit_of_any_result(run: Callable[[Rows], Iterator[Array]], groups: int) -> None:
    order = np.random.default_rng(groups).permutation(NODES)
    whole = list(run(np.arange(NODES)))
    for rows in np.array_split(order, groups):
        for expected, result in zip(whole, run(rows), strict=True):
            np.testing.assert_array_equal(result, expected[rows])
