"""The federated form: one node's projections are those on the directions of all nodes' samples, wherever they are."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.model.subspace import State as Subspaces
from processors.model.subspace import moment
from processors.partition.aggregate import Aggregate, Federation
from processors.partition.output import Output
from processors.prediction import rejects
from processors.prediction.fold import PredictionPartition
from processors.reject import federated, fpca, signal
from processors.rows import table
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.prediction import Reject, Subspace
from schemas.settings import Settings, load
from tests.support.processors import merging
from tests.support.processors.telemetry import NAMES
from tests.unit.processors.prediction.fold.recordings import FAST, recording

Array = NDArray[np.float64]
Stream = list[tuple[str, bytes]]

GAMMA, METRICS = 0.99, len(rejects.METRICS)
PARAMS = signal.Params(subspace="global")


def learned(nodes: int, blocks: int = 40, seed: int = 0) -> tuple[fpca.State, list[Array]]:
    """Return what nodes know of their samples at full rank, and the blocks (nodes, samples, metrics)."""
    random = np.random.default_rng(seed)
    pattern = random.standard_normal((nodes, METRICS, METRICS)) * 0.1 * 0.8 ** np.arange(METRICS)
    level = random.uniform(0.1, 0.6, (nodes, 1, METRICS))
    sent = [level + random.standard_normal((nodes, 10, METRICS)) @ pattern.transpose(0, 2, 1) for _ in range(blocks)]
    state = fpca.init(nodes, METRICS, width=METRICS, rank=METRICS)
    for block in sent:
        state = fpca.update(state, block, gamma=GAMMA)
    return state, sent


def stacked(sent: list[Array]) -> Array:
    """Return every node's samples around its decayed mean, weighed by their age, one below the other."""
    weight = GAMMA ** np.arange(len(sent))[::-1]
    rows = []
    for samples in np.stack(sent, axis=1):  # (blocks, samples, metrics) of one node
        mean = np.average(samples.mean(axis=1), axis=0, weights=weight**2)
        rows.append(((samples - mean) * weight[:, None, None]).reshape(-1, METRICS))
    return np.concatenate(rows)


def message(state: Subspaces, scope: Any = "global", **fields: Any) -> Subspace:
    others = {"at_us": 0, "metrics": list(rejects.METRICS), "nodes": 1, **fields}
    return Subspace(scope=scope, **others, **federated.numbers(state))


@pytest.mark.parametrize("nodes", [1, 2, 3, 7, 16])
def test_at_full_rank_it_projects_on_the_decomposition_of_all_nodes_samples(nodes: int) -> None:
    state, sent = learned(nodes)
    _, sigma, rows = np.linalg.svd(stacked(sent), full_matrices=False)
    wire = codec.decode(Subspace, codec.encode(message(federated.merged(state))))
    shared, _ = federated.adopt(
        None, wire, signal.init(nodes, METRICS, params=PARAMS).windows,
        width=METRICS, ranks=federated.Ranks(METRICS, 0.0, 0.0), rotation=0.71,
    )  # fmt: skip
    assert shared.rank.tolist() == [METRICS]
    assert shared.sigma[0] == pytest.approx(sigma, rel=1e-9)
    usage = np.random.default_rng(1).uniform(0, 1, (nodes, METRICS))
    wanted = (usage - state.mean) @ rows.T
    np.testing.assert_allclose(np.abs(fpca.project(federated.seen(state, shared), usage)), np.abs(wanted), atol=1e-9)


@given(
    nodes=st.integers(1, 12),
    cuts=st.lists(st.integers(1, 11), max_size=3, unique=True),
    ranks=st.lists(st.integers(1, METRICS), min_size=12, max_size=12),
    seed=st.integers(0, 3),
)
@hypothesis(max_examples=25, deadline=None)
def test_how_nodes_are_shared_among_partitions_does_not_matter(
    nodes: int, cuts: list[int], ranks: list[int], seed: int
) -> None:
    state, _ = learned(nodes, 8, seed)
    used = np.arange(METRICS) < np.array(ranks[:nodes])[:, None]
    state = state._replace(basis=np.where(used[:, None], state.basis, 0.0), sigma=np.where(used, state.sigma, 0.0))
    edges = [0, *sorted(cut for cut in cuts if cut < nodes), nodes]
    parts = [
        message(federated.merged(table.take(state, np.arange(start, end))), "partition", partition=number)
        for number, (start, end) in enumerate(itertools.pairwise(edges))
    ]
    summed = (state.basis * state.sigma[:, None] ** 2) @ state.basis.transpose(0, 2, 1)
    together = federated.together(parts)
    np.testing.assert_allclose(moment(together)[0], summed.sum(axis=0), atol=1e-10 * np.abs(summed).sum())
    flat = merging.flat(Subspaces(state.basis, state.sigma), rank=METRICS)
    assert together.sigma[0] == pytest.approx(
        flat.sigma[0].tolist() + [0.0] * (METRICS - flat.sigma.shape[1]), abs=1e-9
    )


def test_a_direction_that_only_turns_its_sign_keeps_its_window_and_a_new_one_has_none() -> None:
    basis, sigma = np.eye(METRICS)[None], np.array([[8.0, 4, 2, 1, 0.5, 0.25]])
    state = signal.init(3, METRICS, params=PARAMS)
    state, first = signal.adopt(state, None, message(Subspaces(basis, sigma)), params=PARAMS)
    assert np.isnan(state.windows.filtered).all()
    filled = state._replace(windows=state.windows._replace(filtered=np.full_like(state.windows.filtered, 0.5)))
    turned = basis.copy()
    turned[0, :, 0] *= -1
    turned[0, :, [1, 2]] = turned[0, :, [2, 1]]
    half = 0.5**0.5
    turned[0, :, 4], turned[0, :, 5] = (
        half * (basis[0, :, 4] + basis[0, :, 5]),
        half * (basis[0, :, 4] - basis[0, :, 5]),
    )
    state, second = signal.adopt(filled, first, message(Subspaces(turned, sigma)), params=PARAMS)
    np.testing.assert_array_equal(second.basis[0, :, 0], first.basis[0, :, 0])
    missing = np.isnan(state.windows.filtered)
    assert not missing[:, :4].any()
    assert missing[:, 4:].all()


@pytest.mark.parametrize(
    ("sigma", "rank"),
    [([1, 0, 0, 0, 0, 0], 1), ([1] * 6, 6), ([8, 4, 2, 1, 0.5, 0.25], 4), ([8, 4, 0.05, 0.01, 0, 0], 2), ([0] * 6, 4)],
)
def test_the_rank_is_what_the_rule_comes_to(sigma: list[float], rank: int) -> None:
    assert federated.Ranks(4, 0.01, 0.1).of(np.array(sigma, dtype=np.float64)) == rank


def configured(**flags: str) -> Settings:
    return load({**FAST, "reject_subspace": "global", **flags}, environ={})


def lines(outputs: list[Output]) -> Stream:
    return [(output.subject, codec.encode(output.message)) for output in outputs]


def looped(settings: Settings, messages: Stream) -> Stream:
    """Return the stream as it is stored where a partition's directions come back at once as those of all nodes."""
    predictions, federation = (
        PredictionPartition(settings, 0),
        Federation(1, silent_seconds=settings.model.silent_seconds),
    )
    stored: Stream = []
    for message_of_node in messages:
        stored.append(message_of_node)
        queue = [message_of_node]
        while queue:
            for subject, payload in lines(predictions.fold([queue.pop(0)])):
                is_direction = subject == NAMES.of("subspace", "partition", "0")
                made = federation.fold(subject, payload) if is_direction else None
                if made is not None:
                    queue.append((NAMES.subspace, codec.encode(made)))
                    stored.append(queue[-1])
    return stored


@pytest.mark.slow
@given(
    seed=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 900), max_size=40),
    restarts=st.lists(st.integers(0, 900), max_size=4),
)
@hypothesis(max_examples=6, deadline=None)
def test_neither_ticks_nor_restarts_change_a_byte(seed: int, cuts: list[int], restarts: list[int]) -> None:
    wanted = configured()
    messages = looped(wanted, recording(seed, 1))
    whole = lines(PredictionPartition(wanted, 0).fold(messages))
    predictions, parts = PredictionPartition(wanted, 0), []
    for start, end in itertools.pairwise(sorted({0, *cuts, *restarts, len(messages)})):
        if start in restarts:
            body = predictions.snapshot()
            predictions = PredictionPartition(wanted, 0)
            predictions.restore(body)
            assert predictions.snapshot() == body
        parts += lines(predictions.fold(messages[start:end]))
    assert parts == whole
    assert {subject.split(".")[1] for subject, _ in whole} == {"prediction", "reject", "workloads", "subspace"}
    published = [codec.decode(Reject, payload) for subject, payload in whole if ".reject." in subject]
    assert {reject.subspace for reject in published} == {"global"}


@pytest.mark.slow
def test_without_directions_of_all_nodes_nothing_is_judged() -> None:
    outputs = lines(PredictionPartition(configured(), 0).fold(recording(1, 1)))
    assert not any(".reject." in subject for subject, _ in outputs)
    assert any(".subspace." in subject for subject, _ in outputs)


@pytest.mark.slow
def test_what_partitions_say_is_of_the_nodes_that_are_not_silent() -> None:
    messages = recording(1, 1)
    outputs = PredictionPartition(configured(), 0).fold(messages)
    published = [output.message for output in outputs if isinstance(output.message, Subspace)]
    assert {directions.nodes for directions in published} <= set(range(1, 5))
    assert max(directions.nodes for directions in published) > 1
    assert all(directions.at_us % 5_000_000 == 0 for directions in published)
    assert len({directions.at_us for directions in published}) == len(published) > 5


@pytest.mark.slow
def test_a_checkpoint_of_the_other_form_is_taken_over_with_empty_windows() -> None:
    messages = recording(2, 1)
    local = PredictionPartition(configured(reject_subspace="local"), 0)
    local.fold(messages)
    wanted = configured()
    other = PredictionPartition(wanted, 0)
    other.restore(local.snapshot())
    assert other.nodes == local.nodes
    assert np.isnan(other._nodes.rejects.signal.windows.filtered).all()
    own, theirs = (partition._nodes.rejects.signal.directions for partition in (local, other))
    np.testing.assert_array_equal(own.basis[: local.nodes], theirs.basis)
    again = PredictionPartition(wanted, 0)
    again.restore(other.snapshot())
    assert again.snapshot() == other.snapshot()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"no json", "Invalid JSON"),
        (codec.encode(message(Subspaces(np.eye(METRICS)[None], np.ones((1, METRICS))), "partition")), "not global"),
        (
            codec.encode(message(Subspaces(np.eye(METRICS)[None], np.ones((1, METRICS))))).replace(b"1.0,", b"", 1),
            "directions of 6 metrics",
        ),
    ],
)
def test_directions_that_cannot_be_used_are_refused(payload: bytes, reason: str) -> None:
    predictions = PredictionPartition(configured(), 0)
    predictions.fold([(NAMES.subspace, payload)])
    (refused,) = predictions.refused
    assert refused[0] == 0
    assert reason in refused[1]


@pytest.mark.slow
def test_directions_of_other_metrics_are_left_aside() -> None:
    wanted = configured()
    messages = looped(wanted, recording(1, 1))
    other = message(Subspaces(np.eye(2)[None], np.ones((1, 2))), metrics=["cpu_util", "gpu_util"])
    mixed = [*messages[:200], (NAMES.subspace, codec.encode(other)), *messages[200:]]
    assert lines(PredictionPartition(wanted, 0).fold(mixed)) == lines(PredictionPartition(wanted, 0).fold(messages))


def test_a_federation_that_is_restored_goes_on() -> None:
    state, _ = learned(6, 8)
    published = [
        (
            NAMES.of("subspace", "partition", str(number)),
            codec.encode(
                message(
                    federated.merged(table.take(state, np.array([2 * number, 2 * number + 1]))),
                    "partition",
                    partition=number,
                    at_us=second * 1_000_000,
                )
            ),
        )
        for second in range(1_700_000_000, 1_700_000_050, 5)
        for number in range(3)
    ]

    def made(federation: Federation, part: Stream) -> list[Message]:
        return [merged for item in part if (merged := federation.fold(*item)) is not None]

    whole = made(Federation(3, silent_seconds=30), published)
    first, second = Federation(3, silent_seconds=30), Federation(3, silent_seconds=30)
    before = made(first, published[:13])
    second.restore(first.snapshot())
    assert before + made(second, published[13:]) == whole
    assert len(whole) == 9
    with pytest.raises(codec.Refused, match="on the subject of partition 2"):
        first.fold(NAMES.of("subspace", "partition", "2"), published[0][1])
    with pytest.raises(ValueError, match="Field required"):
        Aggregate(3, silent_seconds=30).restore(first.snapshot())


def test_one_node_has_at_most_four_times_the_energy_of_the_mean_and_others_keep_every_bit() -> None:
    sigma = np.array([[3.0, 1.0], [100.0, 50.0], [0.0, 0.0]])
    basis = np.repeat(np.eye(2)[np.newaxis], 3, axis=0)
    state = fpca.State(basis, sigma, np.full(3, 2), np.zeros((3, 2)), np.ones(3))
    bounded = federated.bounded(state, 10.0)
    assert bounded.sigma[[0, 2]].tolist() == sigma[[0, 2]].tolist()
    assert float((bounded.sigma[1] ** 2).sum()) == pytest.approx(40.0)
    assert bounded.sigma[1, 0] == pytest.approx(2 * bounded.sigma[1, 1])
    assert federated.bounded(state, float("nan")).sigma.tolist() == sigma.tolist()
