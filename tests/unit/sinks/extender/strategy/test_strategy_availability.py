"""CARICO's rule ranks by room less what is held, however large the room."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.extender.strategy.availability import BEYOND, FULL, LEARNING, PARTIAL, Availability
from tests.support.extender import candidates

often = settings(deadline=None, max_examples=200, derandomize=True)


def test_room_for_ten_pods_is_half_of_the_score() -> None:
    nodes = candidates.nodes(6, room=[0, 10, 12, 40, 990, np.nan], reserved=[0, 0, 2, 0, 0, 0])
    assert Availability().score(candidates.pod(), nodes).tolist() == [0, 50, 50, 80, 99, 0]


def test_a_node_is_full_with_room_for_less_than_one_pod_beside_those_held() -> None:
    nodes = candidates.nodes(5, room=[1, 0.99, 3, -2, np.nan], reserved=[0, 0, 2.5, 0, 4])
    refused = Availability().refuse(candidates.pod(), nodes)
    assert {reason: mask.tolist() for reason, mask in refused.items()} == {FULL: [False, True, True, True, False]}


def test_what_is_needed_is_reported_in_numbers() -> None:
    nodes = candidates.nodes(3, room=[0.4, 5, 1.5], reserved=[0, 0, 1], binding=["cpu", "cpu", ""])
    sentences = [Availability().needs(candidates.pod(), nodes, index) for index in range(3)]
    assert sentences == [
        ["room for 0.40 pods for sure (0.40 expected) less 0 held, where 1 is needed; cpu runs out first"],
        [],
        ["room for 1.50 pods for sure (1.50 expected) less 1 held, where 1 is needed"],
    ]


def test_a_node_is_asked_for_what_is_sure_and_ranked_by_what_is_expected() -> None:
    nodes = candidates.nodes(2, room=[9, 5], sure=[0, 4])
    refused = Availability().refuse(candidates.pod(), nodes)
    assert {reason: mask.tolist() for reason, mask in refused.items()} == {FULL: [True, False]}
    first, second = Availability().score(candidates.pod(), nodes)
    assert first > second


def test_of_pods_of_unknown_cost_a_node_takes_one_until_it_has_seen_what_that_takes() -> None:
    unseen = [True, True, False, True, False]
    nodes = candidates.nodes(5, room=[9] * 5, reserved=[0, 1, 1, 0, 0], running=[0, 0, 0, 1, 1], unseen=unseen)
    refused = Availability().refuse(candidates.pod(), nodes)
    assert {reason: mask.tolist() for reason, mask in refused.items()} == {LEARNING: [False, True, False, True, False]}
    waiting = candidates.nodes(1, room=[9], reserved=[1], starting=[0], unseen=[True])
    assert not Availability().refuse(candidates.pod(), waiting), "what waits for long will tell nothing soon"
    for index in (1, 3):
        assert "is unknown" in Availability().needs(candidates.pod(), nodes, index)[0]


def test_a_node_that_waits_for_evidence_lacks_no_resource() -> None:
    sure, withheld, reserved = [7, 7, 7, 1, 1], [7, 0.5, 7, 0.5, 0], [7, 7, 3, 1, 0.5]
    nodes = candidates.nodes(5, room=[16] * 5, sure=sure, withheld=withheld, reserved=reserved, binding=["cpu"] * 5)
    refused = Availability().refuse(candidates.pod(), nodes)
    assert {reason: mask.tolist() for reason, mask in refused.items()} == {
        FULL: [False, True, False, True, True],
        PARTIAL: [True, False, False, False, False],
    }
    waiting, full = (Availability().needs(candidates.pod(), nodes, index) for index in (0, 1))
    assert waiting == [
        "room for 7.00 of 14.00 pods for sure is open while what they take is still being learned, less 7 held, "
        "where 1 is needed: wait for their telemetry"
    ]
    assert "cpu runs out first" in full[0]


@pytest.mark.parametrize(("asked", "fits"), [({"cpu": 64.0}, False), ({"cpu": 2.0}, True), ({"memory": 5e9}, False)])
def test_a_pod_that_requests_more_than_a_node_has_does_not_fit(asked: dict[str, float], fits: bool) -> None:
    pod = candidates.pod(asked)
    for present in ({"allocatable": {"cpu": [2], "memory": [4e9]}}, {"cores": [2], "allocatable": {"memory": [4e9]}}):
        nodes = candidates.nodes(1, room=[50], **present)
        assert (BEYOND not in Availability().refuse(pod, nodes)) == fits


@given(st.integers(0, 10**6), st.integers(1, 20))
@often
def test_more_room_is_a_higher_score_by_a_twentieth_of_a_pod_at_any_size(twentieths: int, more: int) -> None:
    nodes = candidates.nodes(2, room=[twentieths / 20, (twentieths + more) / 20])
    less, greater = Availability().score(candidates.pod(), nodes)
    assert 0 <= less < greater < 100


@pytest.mark.parametrize("room", [1e3, 1e6])
def test_one_pod_more_still_counts_where_there_is_room_for_a_million(room: float) -> None:
    less, greater = Availability().score(candidates.pod(), candidates.nodes(2, room=[room, room + 1]))
    assert less < greater < 100
