"""What a pod of the cluster takes while no pod says so."""

import math

import numpy as np
import pytest

from processors.estimation.global_model import FADING_US, REMEMBERED_US, GlobalModel, MeanPod, remember

HOUR = 3600 * 1_000_000


def model(cost: float | None, voters: int = 5) -> GlobalModel:
    fair = 2.0 if voters >= 3 else math.nan
    return GlobalModel(None, None if cost is None else np.array([cost]), fair, 10, voters)


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
    ahead = (30 * 24 * HOUR, model(2.0)), (0, model(None, 0))
    assert in_force(*ahead, (REMEMBERED_US, model(None, 0))).cost == 2.0
    assert in_force(*ahead, (REMEMBERED_US + 1, model(None, 0))).cost is None, "its clock was ahead"


def test_while_pods_run_what_they_take_counts_and_what_they_took_before_they_drained_is_remembered() -> None:
    draining = (0, model(2.0)), (60_000_000, model(0.1))
    assert in_force(*draining).cost == 0.1
    assert in_force(*draining, (60_000_001, model(None, 0))).cost == pytest.approx(1.0)
    settled = [(each * 1_000_000, model(2.0 if each < 5 else 0.3)) for each in range(200)]
    assert in_force(*settled, (HOUR, model(None, 0))).cost == 0.3, "a peak of some seconds is over"


def test_one_or_two_of_several_nodes_do_not_set_aside_what_three_have_attested() -> None:
    by_one = (0, model(0.3)), (1_000_000, model(3.8, voters=1))
    assert in_force(*by_one).cost == 3.8, "what runs now may come again"
    assert in_force(*by_one, (2_000_000, model(None, 0))).cost == pytest.approx(0.3, rel=0.01)
    assert in_force((0, model(0.3)), (HOUR, model(3.8, voters=3)), (HOUR + 1, model(None, 0))).cost == 3.8
    assert in_force((0, model(3.8, voters=2)), (1, model(0.3)), (2, model(None, 0))).cost == 0.3, (
        "nor by what was before"
    )


def test_what_three_nodes_had_evidence_of_fades_while_others_run_pods_that_take_less() -> None:
    later = [(each * FADING_US // 4, model(0.1, voters=2)) for each in range(1, 41)]
    assert in_force((0, model(3.2)), *later[:4]).cost == pytest.approx(1.6)
    assert in_force((0, model(3.2)), *later).cost == pytest.approx(0.1)
    assert in_force((0, model(3.2)), *later, (later[-1][0] + 1, model(None, 0))).cost == pytest.approx(0.1)


def test_in_a_cluster_of_two_nodes_what_they_say_counts() -> None:
    assert in_force((0, model(0.3, voters=2)), (HOUR, model(3.8, voters=1))).cost == 3.8
    assert in_force((0, model(3.8, voters=2)), (HOUR, model(0.3, voters=1))).cost == 0.3


@pytest.mark.parametrize("fair", [2.0, math.nan])
def test_it_is_stored(fair: float) -> None:
    mean = MeanPod(7, np.array([0.5, 1e9]), fair, 3)
    again = MeanPod.load(mean.dump())
    assert (again.at_us, again.cost.tolist(), again.voters) == (7, [0.5, 1e9], 3)
    np.testing.assert_equal(again.fair, fair)
