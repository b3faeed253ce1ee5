"""What a pod of the cluster takes while no pod says so."""

import math

import numpy as np
import pytest

from processors.estimation.global_model import FADING_US, REMEMBERED_US, GlobalModel, MeanPod, remember

HOUR = 3600 * 1_000_000


def model(cost: float | None, voters: int = 5, nodes: int = 10) -> GlobalModel:
    fair = 2.0 if voters >= 3 else math.nan
    return GlobalModel(None, None if cost is None else np.array([cost]), fair, nodes, voters)


def in_force(*heard: tuple[int, GlobalModel]) -> GlobalModel:
    mean, latest = None, GlobalModel()
    for at_us, each in heard:
        mean, latest = remember(mean, each, at_us)
    return latest


def test_it_takes_for_a_day_what_pods_took_last() -> None:
    assert in_force((0, model(2.0)), (5, model(None, 0))).cost == 2.0
    assert in_force((0, model(2.0)), (5, model(None, 0))).fair == 2.0
    assert in_force((0, model(2.0)), (REMEMBERED_US, model(None, 0))).cost == 2.0
    assert in_force((0, model(2.0)), (REMEMBERED_US + 1, model(None, 0))).cost is None
    assert in_force((0, model(None, 0))).cost is None


def test_while_pods_run_what_they_take_counts_and_what_they_took_before_they_drained_is_remembered() -> None:
    draining = (0, model(2.0)), (FADING_US, model(0.1))
    assert in_force(*draining).cost == 0.1
    assert in_force(*draining, (FADING_US + 1, model(None, 0))).cost == pytest.approx(1.0)


def test_one_or_two_of_several_nodes_do_not_set_aside_what_three_have_attested() -> None:
    assert in_force((0, model(0.3)), (HOUR, model(3.8, voters=1))).cost == 0.3
    assert in_force((0, model(0.3)), (HOUR, model(3.8, voters=3))).cost == 3.8
    assert in_force((0, model(0.3, voters=2)), (HOUR, model(3.8, voters=1))).cost == 3.8
    assert in_force((0, model(0.3)), (HOUR, model(3.8, voters=1, nodes=2))).cost == 3.8, "there are no others"


@pytest.mark.parametrize("fair", [2.0, math.nan])
def test_it_is_stored(fair: float) -> None:
    mean = MeanPod(7, np.array([0.5, 1e9]), fair, 3)
    again = MeanPod.load(mean.dump())
    assert (again.at_us, again.cost.tolist(), again.voters) == (7, [0.5, 1e9], 3)
    np.testing.assert_equal(again.fair, fair)
