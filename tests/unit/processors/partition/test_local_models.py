"""Local models of a partition's nodes, and their sums."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.partition.partition import Partition
from schemas.messages.estimate import Model
from schemas.subject import kind_and_node
from tests.support.processors import telemetry
from tests.unit.processors.partition.models import VARIANTS, configured, lines, with_models


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("smoothed", ["true", "false"])
@given(cuts=st.lists(st.integers(0, 140), max_size=25))
@settings(max_examples=6, deadline=None)
def test_local_models_come_with_each_block_and_change_nothing_else(
    variant: str, smoothed: str, cuts: list[int]
) -> None:
    common = {"model_variant": variant, "smoothing_publish": smoothed}
    wanted = configured(model_publish_local="true", **common)
    messages = with_models(telemetry.recording(), variant)
    partition, reports = Partition(wanted, 0), []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(messages)]):
        reports += lines(partition.fold(messages[start:end])[0])
    assert reports == lines(Partition(wanted, 0).fold(messages)[0])
    local = [line for line in reports if line[0].startswith("spazio.model.local.")]
    blocks = {(subject, payload) for subject, payload in messages if ".samples." in subject}
    assert len(local) == len(blocks)
    assert [line for line in reports if line not in local] == lines(
        Partition(configured(**common), 0).fold(messages)[0]
    )


def test_a_partitions_sums_are_those_of_its_local_models() -> None:
    """Without usage of pods, by which sums have what these take."""
    messages = [each for each in telemetry.recording(nodes=4, seconds=20) if kind_and_node(each[0])[0] != "pods"]
    outputs, _ = Partition(configured(model_publish_local="true"), 0).fold(messages)
    newest: dict[str, Model] = {}
    compared = 0
    for message in (output.message for output in outputs):
        if not isinstance(message, Model):
            continue
        if message.scope == "local":
            assert message.node is not None
            newest[message.node] = message
        elif message.nodes == len(newest) == 4:
            for name in ("moment", "cost"):
                summed = np.sum([getattr(model, name) for model in newest.values()], axis=0)
                assert getattr(message, name) == pytest.approx(summed.tolist(), rel=1e-12)
            assert message.pods == pytest.approx(sum(model.pods for model in newest.values()), rel=1e-12)
            compared += 1
    assert compared > 10
    assert any(any(model.moment) for model in newest.values())


@pytest.mark.slow
def test_a_state_made_without_local_models_goes_on_with_them() -> None:
    messages = telemetry.recording(seconds=20)
    without, going_on = Partition(configured(), 0), Partition(configured(model_publish_local="true"), 0)
    without.fold(messages[:60])
    going_on.restore(without.snapshot())
    outputs, _ = going_on.fold(messages[60:])
    whole = Partition(configured(model_publish_local="true"), 0).fold(messages)[0]
    assert lines(outputs) == lines(whole)[-len(outputs) :]
