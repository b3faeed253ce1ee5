"""Models made at the edge are those made of samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.model import subspace
from processors.partition.edge import Edge
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Model
from tests.support.processors import telemetry
from tests.unit.processors.partition.edge.both import (
    NAMES,
    SETTINGS,
    both,
    folded,
    global_model,
    load,
    model_state,
    own,
)


@pytest.mark.slow
def test_with_a_global_model_that_nodes_hear_now_and_then_the_signal_is_that_of_samples_too() -> None:
    sampled, modelled = both(SETTINGS, 5, 90, hears=True)
    (_, wanted), (_, rows) = folded(SETTINGS, sampled), folded(SETTINGS, modelled)
    apart = [abs(rows[key].signal - row.signal) / max(row.signal, 1.0) for key, row in wanted.items()]
    assert np.mean(apart) <= 0.04
    assert np.quantile(apart, 0.99) <= 0.2
    for key, row in wanted.items():
        assert abs(rows[key].available - row.available) <= max(0.05, 0.001 * row.available)


def test_what_is_no_global_model_is_refused() -> None:
    with pytest.raises(codec.Refused, match="scope"):
        Edge(SETTINGS, "n").adopt(global_model(0).replace(b"global", b"local"))


@pytest.mark.slow
def test_the_centres_model_stays_as_near_the_nodes_own_as_the_setting_says() -> None:
    settings = load(edge_model_change="0.05")
    edge, centre, far = Edge(settings, "n"), Partition(settings, 0), 0
    random = np.random.default_rng(3)
    seconds = 300
    for second in range(seconds):
        payload = codec.encode(telemetry.noisy("n", second, 2 + second // 40 % 3, random))
        messages = edge.block(payload)
        assert messages is not None
        centre.fold([(NAMES.part(0, "edge", "n"), messages)])
        ours, theirs = own(edge).moment[0], model_state(centre).moment[0]
        size = max(float(np.linalg.norm(ours)), settings.estimate.max_pods**-2)
        far += bool(np.linalg.norm(ours - theirs) > 0.05 * size)
        assert np.linalg.norm(ours - theirs) <= 0.2 * size
    assert far < seconds / 5  # it is sent with the next block, and a block may move it far


@pytest.mark.slow
def test_sums_of_models_are_those_of_samples() -> None:
    sampled, modelled = both(load(edge_model_change="0"), 4, 60)
    (samples, _), (edges, _) = folded(SETTINGS, sampled), folded(SETTINGS, modelled)
    for node in samples._state.slots:
        left, right = samples.state(node), edges.state(node)
        assert left is not None
        assert right is not None
        np.testing.assert_allclose(right.moment, left.moment, atol=0.01 * float(np.abs(left.moment).max()))
        np.testing.assert_array_equal(right.sizes, left.sizes)
        np.testing.assert_allclose(right.cost.products, left.cost.products, atol=2e-3)
        np.testing.assert_allclose(right.waiting, left.waiting, atol=1e-3)


@pytest.mark.slow
def test_the_reference_forms_queue_of_models_is_that_of_samples() -> None:
    settings = load(model_variant="carico")
    sums = []
    for messages in both(settings, 4, 40):
        outputs, _ = Partition(settings, 0).fold(messages)
        sums.append([output.message for output in outputs if isinstance(output.message, Model)])
    assert len(sums[0]) == len(sums[1]) > 30
    for left, right in zip(*sums, strict=True):
        np.testing.assert_allclose(right.moment, left.moment, rtol=1e-3)


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_state_made_of_a_moment_stands_for_that_moment(rank: int, seed: int) -> None:
    columns = np.random.default_rng(seed).uniform(0, 1, (3, 4, rank))
    moment = columns @ columns.transpose(0, 2, 1)
    np.testing.assert_allclose(subspace.moment(subspace.of_moment(moment, rank=rank)), moment, atol=1e-9)


@pytest.mark.slow
def test_a_node_knows_what_the_centre_believes_also_while_containers_come_and_go() -> None:
    edge, centre = Edge(SETTINGS, "n"), Partition(SETTINGS, 0)
    random = np.random.default_rng(11)
    for second in range(60):
        if second % 9 == 4:
            payload = codec.encode(telemetry.event("n", second + 0.3))
            edge.event(payload)
            centre.fold([(NAMES.part(0, "containers", "n"), payload)])
        messages = edge.block(codec.encode(telemetry.noisy("n", second, 2 + second // 20, random))) or b""
        centre.fold([(NAMES.part(0, "edge", "n"), messages)])
        np.testing.assert_array_equal(model_state(edge._centre).moment, model_state(centre).moment)
        np.testing.assert_array_equal(model_state(edge._partition).settling, model_state(centre).settling)
