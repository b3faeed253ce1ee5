"""The peak strategy leaves room for the peak that is to come, and for what came after it was predicted."""

import numpy as np

from sinks.extender.strategy.peak import Peak
from tests.support.extender import candidates
from tests.support.extender.candidates import GIB

POD = candidates.pod({"cpu": 1.0, "memory": 2 * GIB})


def test_the_score_is_the_share_left_of_the_scarcer_resource() -> None:
    """Of 8 cores 3 + 0 + 1 are taken, then 3 + 2 + 1; of 16 GiB 6 + 0 + 2, then 10 + 0 + 2; the rest is free."""
    nodes = candidates.nodes(
        3,
        allocatable={"cpu": 8, "memory": 16 * GIB},
        peak={"cpu": [3, 3, 0], "memory": [6 * GIB, 10 * GIB, 0]},
        unpredicted={"cpu": [0, 2, 0], "memory": 0},
    )
    assert Peak().score(POD, nodes).tolist() == [50, 25, 87.5]
    assert Peak().refuse(POD, nodes) == {}


def test_a_node_is_refused_whose_peak_leaves_less_than_the_pod_requests() -> None:
    nodes = candidates.nodes(
        4,
        allocatable={"cpu": 8, "memory": 16 * GIB},
        peak={"cpu": [7, 7, 6.5, np.nan], "memory": [14 * GIB, 14.5 * GIB, 0, 20 * GIB]},
        unpredicted={"cpu": [0, 0, 0.75, 0], "memory": 0},
    )
    refused = {reason: mask.tolist() for reason, mask in Peak().refuse(POD, nodes).items()}
    assert refused == {
        "the predicted peak leaves less cpu than the pod requests": [False, False, True, False],
        "the predicted peak leaves less memory than the pod requests": [False, True, False, True],
    }
    assert Peak().score(POD, nodes).tolist() == [0, 0, 0, 0]
    sentence = (
        "cpu: a predicted peak of 6.5 cores, 0.75 cores requested by newer pods and 1 cores by the pod exceed 8 cores"
    )
    assert Peak().needs(POD, nodes, 2) == [sentence]
    assert Peak().needs(POD, nodes, 0) == []


def test_a_lower_peak_is_never_worse() -> None:
    peaks = np.linspace(0, 9, 40)
    nodes = candidates.nodes(40, allocatable={"cpu": 8, "memory": GIB}, peak={"cpu": peaks, "memory": 0})
    scores = Peak().score(candidates.pod({"cpu": 0.5}), nodes)
    assert (np.diff(scores) <= 0).all()
    assert scores[0] == 93.75
    assert scores[-1] == 0


def test_a_resource_that_no_node_predicts_is_left_out_and_one_that_some_lack_scores_0() -> None:
    """Of 8 cores 3 + 1 and 5 + 1 are taken; what memory takes is known of neither node, or of the first alone."""
    peak = {"cpu": [3, 5], "memory": [np.nan, np.nan]}
    nodes = candidates.nodes(2, allocatable={"cpu": 8, "memory": 16 * GIB}, peak=peak)
    assert Peak().score(POD, nodes).tolist() == [50, 25]
    peak["memory"] = [0, np.nan]
    nodes = candidates.nodes(2, allocatable={"cpu": 8, "memory": 16 * GIB}, peak=peak)
    assert Peak().score(POD, nodes).tolist() == [50, 0]


def test_without_a_prediction_a_node_passes_and_scores_0() -> None:
    nodes = candidates.nodes(
        2, allocatable={"cpu": 8, "memory": 16 * GIB}, peak={"cpu": [np.nan, 1], "memory": [1, np.nan]}
    )
    assert Peak().refuse(POD, nodes) == {}
    assert Peak().score(POD, nodes).tolist() == [0, 0]
