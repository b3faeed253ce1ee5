"""The signal is raised by departures and by little else, whichever nodes share a batch and whatever is missing."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.reject import align, fpca, signal, spike
from processors.rows import table

Array = NDArray[np.float64]
Outputs = list[signal.Output]

PARAMS = signal.Params()
NODES, METRICS = 50, 6


def usage(
    blocks: int, *, nodes: int = NODES, metrics: int = METRICS, persistence: float = 0.0, seed: int = 0
) -> Iterator[Array]:
    """Yield stationary blocks (nodes, samples, metrics): a level and a pattern of each node's own, and noise."""
    rng = np.random.default_rng(seed)
    pattern = rng.standard_normal((nodes, metrics, metrics)) * 0.03 * 0.9 ** np.arange(metrics)
    level, cause = rng.uniform(0.1, 0.6, (nodes, 1, metrics)), rng.standard_normal((nodes, 1, metrics))
    for _ in range(blocks):
        cause = persistence * cause + (1 - persistence**2) ** 0.5 * rng.standard_normal(cause.shape)
        yield level + cause @ pattern.transpose(0, 2, 1) + 0.01 * rng.standard_normal((nodes, 10, metrics))


def run(stream: Iterator[Array] | list[Array], params: signal.Params = PARAMS) -> tuple[signal.State, Outputs]:
    blocks = list(stream)
    state = signal.init(blocks[0].shape[0], blocks[0].shape[2], params=params)
    outputs = []
    for block in blocks:
        state, output = signal.update(state, block, params=params)
        outputs.append(output)
    return state, outputs


def rejected(outputs: Outputs) -> float:
    return float(np.mean([output.reject for output in outputs]))


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.9])
def test_on_stationary_usage_less_than_a_hundredth_of_projections_spike(persistence: float) -> None:
    state, spikes, judged = signal.init(NODES, METRICS, params=PARAMS), 0, 0
    for block in usage(400, persistence=persistence):
        ready = spike.judged(state.windows) & (np.arange(METRICS) < state.directions.rank[:, np.newaxis])
        state, output = signal.update(state, block, params=PARAMS)
        spikes, judged = spikes + int(np.count_nonzero(output.spikes)), judged + int(np.count_nonzero(ready))
    assert judged > 300 * NODES * 4
    assert spikes / judged < 0.01


def uncentred(*, aligned: bool, rise: float = 0.0) -> float:
    """Return the share of projections of whole usage, not centred, that spike; with `rise` only of blocks that rise."""
    state = fpca.init(NODES, METRICS, width=4, rank=4)
    windows = spike.init(NODES, 4, lag=30)
    shares = []
    for number, block in enumerate(usage(400)):
        if rise and number % 40 == 0:
            block[:, :, :2] += rise
        whole = np.matmul(np.median(block, axis=1)[:, np.newaxis], state.basis)[:, 0]
        windows, spikes = spike.update(windows, whole, threshold=3.5, influence=0.1, floor=0.02)
        if number > 60 and bool(rise) == (number % 40 == 0):
            shares.append(np.any(spikes, axis=1).mean() if rise else np.mean(spikes != 0))
        after = fpca.update(state, block, gamma=0.99)
        if aligned:
            basis, source, kept = align.match(state.basis, after.basis, rotation=align.ONE_TO_ONE)
            after, windows = after._replace(basis=basis), spike.follow(windows, source, kept)
        state = after
    return float(np.mean(shares))


@pytest.mark.slow
def test_of_whole_usage_flips_of_sign_make_several_times_the_false_spikes_and_hide_true_ones() -> None:
    assert uncentred(aligned=False) > 3 * uncentred(aligned=True)
    assert uncentred(aligned=False, rise=0.4) < uncentred(aligned=True, rise=0.4) - 0.05


@pytest.mark.slow
def test_after_a_lasting_step_flips_of_sign_go_on_rejecting_where_alignment_does_not() -> None:
    def stepped() -> Iterator[Array]:
        return (block + 0.3 * (number >= 150) for number, block in enumerate(usage(180, persistence=0.5)))

    _, aligned = run(stepped())
    _, flipping = run(stepped(), dataclasses.replace(PARAMS, aligned=False))
    assert rejected(aligned[160:]) < 0.03
    assert rejected(flipping[160:]) > 2 * rejected(aligned[160:])


def test_a_rise_of_two_metrics_is_rejected_at_once_and_calm_hardly_ever() -> None:
    def risen() -> Iterator[Array]:
        for number, block in enumerate(usage(300, persistence=0.8)):
            block[:, :, :2] += 0.4 * (number >= 120 and number % 60 < 5)
            yield block

    _, outputs = run(risen())
    assert np.mean([outputs[number].reject for number in (120, 180, 240)]) > 0.95
    assert rejected([output for number, output in enumerate(outputs[120:]) if number % 60 >= 5]) < 0.02


def test_what_lasts_a_fifth_of_a_second_does_not_count() -> None:
    blocks = list(usage(120))
    struck = [block.copy() for block in blocks]
    struck[100][:, 3:5] += 0.6
    present, hit = run(blocks)[1][100], run(struck)[1][100]
    assert hit.reject.mean() <= present.reject.mean() + 0.02


@pytest.mark.parametrize("aligned", [True, False])
def test_the_score_is_the_share_of_strength_that_spikes_and_no_direction_beyond_the_rank_does(aligned: bool) -> None:
    _, outputs = run(usage(150), dataclasses.replace(PARAMS, aligned=aligned))
    for before, output in itertools.pairwise(outputs[60:]):
        assert not output.spikes[np.arange(METRICS) >= before.rank[:, np.newaxis]].any()
        share = np.sum(output.strength * np.abs(output.spikes), axis=1) / np.sum(output.strength, axis=1)
        np.testing.assert_allclose(output.score, share, atol=1e-15)
        assert np.array_equal(output.reject, output.score > PARAMS.theta)


def test_nothing_is_rejected_before_a_window_is_full() -> None:
    _, outputs = run(usage(40))
    for output in outputs[:30]:
        assert np.isnan(output.score).all()
        assert not output.reject.any()
    assert np.mean(~np.isnan(outputs[-1].score)) > 0.9


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=8, derandomize=True)
def test_how_nodes_are_grouped_changes_no_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = list(usage(45, nodes=17, metrics=7, persistence=0.5, seed=seed % 1000))
    for block in blocks:
        block[rng.random(block.shape) < 0.02] = np.nan
        block[rng.random(17) < 0.05] = np.nan
    together, whole = run(blocks)
    for rows in np.split(rng.permutation(17), [1, 4, 9]):
        apart, parts = run([block[rows] for block in blocks])
        for name, array in table.flatten(apart).items():
            assert np.array_equal(array, table.flatten(together)[name][rows], equal_nan=True), name
        for part, output in zip(parts, whole, strict=True):
            for name, array in table.flatten(part).items():
                assert np.array_equal(array, table.flatten(output)[name][rows], equal_nan=True), name


def test_rows_of_a_state_can_be_taken_put_back_and_restored() -> None:
    blocks = list(usage(35, nodes=5))
    state, _ = run(blocks)
    rows = np.array([3, 1])
    part, _ = signal.update(table.take(state, rows), blocks[0][rows], params=PARAMS)
    table.put(state, rows, part)
    arrays = table.flatten(table.extend(state, signal.init(1, METRICS, params=PARAMS)))
    restored = table.restore(signal.init(0, METRICS, params=PARAMS), arrays)
    assert restored.windows.filtered.shape[0] == 6
    assert np.array_equal(restored.directions.sigma[rows], part.directions.sigma)


@pytest.mark.parametrize("level", [0.0, 0.3, 1.7])
def test_a_constant_node_is_never_rejected_until_it_moves(level: float) -> None:
    blocks = [np.full((2, 10, METRICS), level) for _ in range(60)]
    state, outputs = run(blocks)
    assert outputs[-1].score.tolist() == [0, 0]
    _, moved = signal.update(state, blocks[0] + 0.5, params=PARAMS)
    assert moved.score.tolist() == [1, 1]
    assert moved.reject.all()


def test_a_constant_and_a_missing_column_and_usage_above_one_leave_the_others_their_spikes() -> None:
    def odd() -> Iterator[Array]:
        for block in usage(120, metrics=3):
            none, flat = np.full_like(block[..., :1], np.nan), np.full_like(block[..., :1], 0.25)
            yield np.concatenate((block[..., :1] + 2.0, none, block[..., 1:], flat), axis=2)

    blocks = list(odd())
    blocks[-1][:, :, 0] += 0.8
    _, outputs = run(blocks)
    assert rejected(outputs[60:-1]) < 0.02
    assert outputs[-1].reject.mean() > 0.9


@pytest.mark.parametrize("before", [1, 2, 60])
def test_a_node_of_which_nothing_is_known_has_no_score_and_keeps_its_state(before: int) -> None:
    blocks = list(usage(before, nodes=3))
    state, _ = run(blocks)
    block = blocks[0].copy()
    block[1] = np.nan
    after, output = signal.update(state, block, params=PARAMS)
    assert np.isnan(output.score).tolist() == [before < 60, True, before < 60]
    assert not output.reject[1]
    for name, array in table.flatten(after).items():
        if name != "windows.filtered":
            assert np.array_equal(array[1], table.flatten(state)[name][1]), name
    used = slice(state.directions.rank[1])
    assert np.array_equal(after.windows.filtered[1, used], state.windows.filtered[1, used], equal_nan=True)


def test_the_rank_finds_how_many_causes_there_are() -> None:
    rng = np.random.default_rng(3)
    pattern = np.linalg.qr(rng.standard_normal((20, 8, 3))).Q * 0.1
    blocks = [0.5 + rng.standard_normal((20, 10, 3)) @ pattern.transpose(0, 2, 1) for _ in range(80)]
    _, outputs = run(blocks)
    ranks = np.array([output.rank for output in outputs[40:]])
    assert set(np.unique(ranks)) == {3, 4}  # the third matters, so a fourth is tried, and dropped for having nothing


@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", 1.1), ("theta", -0.1), ("influence", 2.0), ("low", np.nan), ("rotation", 0.5), ("lag", 1)],
)
def test_settings_that_could_not_work_are_refused(name: str, value: float) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(PARAMS, **wrong)
