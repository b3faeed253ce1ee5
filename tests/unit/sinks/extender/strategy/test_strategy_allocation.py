"""The allocation strategies count as kube-scheduler does: its own test vectors, and a plain loop in whole numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sinks.extender.candidate import Candidates, Pod
from sinks.extender.strategy.node_resources import allocation
from sinks.extender.strategy.node_resources.least_allocated import LeastAllocated
from sinks.extender.strategy.node_resources.most_allocated import MostAllocated
from sinks.extender.strategy.node_resources.requested_to_capacity_ratio import RequestedToCapacityRatio, curve, points
from tests.support.extender import candidates

EVEN = {"cpu": 1.0, "memory": 1.0}
PACK, SPREAD = points(("0=0", "100=10")), points(("0=10", "100=0"))
TENTH = points(("0=0", "100=1"))
FOO, BAR = "intel.com/foo", "intel.com/bar"
MIB = 2**20
NAN = np.nan
often = settings(deadline=None, max_examples=200, derandomize=True)

Pair = tuple[float, float]


def nodes(*capacity: Pair) -> Candidates:
    """Return empty nodes of so many thousandths of a core and bytes."""
    cpu, memory = zip(*capacity, strict=True)
    return candidates.nodes(len(capacity), allocatable={"cpu": np.array(cpu) / 1000, "memory": memory})


def asking(cpu: float, memory: float) -> Pod:
    return candidates.pod({"cpu": cpu / 1000, "memory": memory})


@pytest.mark.parametrize(
    ("capacity", "asked", "weights", "expected"),
    [
        ([(4000, 10000), (6000, 10000)], (3000, 5000), EVEN, [37, 50]),
        ([(4000, 10000)], (3000, 5000), {"cpu": 1.0, "memory": 2.0}, [41]),
        ([(10000, 20000)], (6000, 5000), EVEN, [57]),
        ([(10000, 50000)], (6000, 10000), EVEN, [60]),
        ([(4000, 10000)], (6000, 0), EVEN, [50]),
        ([(4000, 10000)], (6000, 5000), EVEN, [25]),
    ],
)
def test_least_allocated_gives_the_scores_of_kube_scheduler(
    capacity: list[Pair], asked: Pair, weights: dict[str, float], expected: list[float]
) -> None:
    assert LeastAllocated(weights).score(asking(*asked), nodes(*capacity)).tolist() == expected


@pytest.mark.parametrize(
    ("capacity", "asked", "weights", "expected"),
    [
        ([(4000, 10000), (6000, 10000)], (3000, 5000), EVEN, [62, 50]),
        ([(4000, 10000)], (3000, 5000), {"cpu": 1.0, "memory": 2.0}, [58]),
        ([(5000, 10000), (10000, 9000)], (5000, 9000), EVEN, [95, 75]),
    ],
)
def test_most_allocated_gives_the_scores_of_kube_scheduler(
    capacity: list[Pair], asked: Pair, weights: dict[str, float], expected: list[float]
) -> None:
    assert MostAllocated(weights).score(asking(*asked), nodes(*capacity)).tolist() == expected


def test_containers_that_state_nothing_count_with_stand_ins() -> None:
    """Of 250m and 1000Mi, three containers without requests take (300m, 600Mi), and one takes (100m, 200Mi)."""
    pod = candidates.pod(nonzero={"cpu": 0.1, "memory": 200 * MIB})
    result = candidates.nodes(
        2,
        allocatable={"cpu": 0.25, "memory": 1000 * MIB},
        nonzero={"cpu": [0.2, 0], "memory": [400 * MIB, 0]},
    )
    assert MostAllocated(EVEN).score(pod, result).tolist() == [80, 30]


def test_requested_to_capacity_ratio_rounds_the_node_and_cuts_the_resource() -> None:
    result = RequestedToCapacityRatio(EVEN, SPREAD).score(asking(3000, 5000), nodes((4000, 10000), (6000, 10000)))
    assert result.tolist() == [38, 50]


@pytest.mark.parametrize(
    ("weights", "capacity", "asked", "expected"),
    [
        ({FOO: 1.0}, {FOO: [8, 4]}, {FOO: 2.0}, [2, 5]),
        ({FOO: 1.0}, {FOO: [8, 4]}, {FOO: 4.0}, [5, 10]),
        ({FOO: 3.0, BAR: 5.0}, {FOO: [8, 4], BAR: [4, 8]}, {FOO: 2.0, BAR: 2.0}, [4, 3]),
    ],
)
def test_requested_to_capacity_ratio_weighs_extended_resources(
    weights: dict[str, float], capacity: dict[str, list[float]], asked: dict[str, float], expected: list[float]
) -> None:
    result = candidates.nodes(2, allocatable=capacity)
    assert RequestedToCapacityRatio(weights, TENTH).score(candidates.pod(asked), result).tolist() == expected


@pytest.mark.parametrize(
    ("shape", "utilization", "expected"),
    [
        ([(10, 1), (90, 9)], [-10, 9, 10, 19, 20, 89, 90, 110], [1, 1, 1, 1, 2, 8, 9, 9]),
        ([(0, 2), (40, 10), (100, 0)], [20, 30, 40, 70, 100], [6, 8, 10, 5, 0]),
        ([(0, 10), (100, 0)], [1, 99], [10, 1]),
        ([(50, 7)], [0, 50, 100], [7, 7, 7]),
    ],
)
def test_the_curve_is_straight_between_points_and_cut_toward_its_beginning(
    shape: list[tuple[int, int]], utilization: list[int], expected: list[int]
) -> None:
    assert curve(shape, np.array(utilization)).tolist() == expected


def documented() -> tuple[Pod, Candidates]:
    """Return the worked example of the Kubernetes documentation on bin packing."""
    return candidates.pod({FOO: 2.0, "memory": 256.0 * MIB, "cpu": 2.0}), candidates.nodes(
        2,
        allocatable={FOO: [4, 8], "memory": 1024 * MIB, "cpu": 8},
        requested={FOO: [1, 2], "memory": [256 * MIB, 512 * MIB], "cpu": [1, 6]},
    )


def test_the_documented_example_scores_60_and_69_as_kube_scheduler_counts() -> None:
    """(75·5 + 50·1 + 37·3) / 9 = 59.6 and (50·5 + 75·1 + 100·3) / 9 = 69.4."""
    strategy = RequestedToCapacityRatio({FOO: 5.0, "memory": 1.0, "cpu": 3.0}, PACK)
    assert strategy.score(*documented()).tolist() == [60, 69]


def test_the_documented_example_scores_5_and_7_as_the_documentation_counts() -> None:
    """Scores of resources are cut to 0..10 first, (7·5 + 5·1 + 3·3) / 9 and (5·5 + 7·1 + 10·3) / 9, then rounded."""
    pod, result = documented()
    table = allocation.table(pod, result, {FOO: 5.0, "memory": 1.0, "cpu": 3.0})
    scores = curve([(0, 0), (100, 10)], allocation.per_cent(table.requested, table.capacity))
    assert scores.tolist() == [[7, 5], [5, 7], [3, 10]]
    assert np.round(allocation.mean(table, scores, table.counts)).tolist() == [5, 7]


def test_a_resource_that_does_not_count_takes_its_weight_with_it() -> None:
    """Neither the one that the pod does not ask for, nor the one that the second node has none of."""
    weights = {"cpu": 1.0, FOO: 3.0, BAR: 3.0}
    result = candidates.nodes(2, allocatable={"cpu": 4, FOO: [4, 0], BAR: 8})
    pod = candidates.pod({"cpu": 1.0, FOO: 3.0})
    assert MostAllocated(weights).score(pod, result).tolist() == [(25 + 3 * 75) // 4, 25]


@pytest.mark.parametrize("strategy", [MostAllocated, LeastAllocated])
def test_a_node_with_something_unknown_scores_0_and_the_others_as_ever(
    strategy: type[MostAllocated] | type[LeastAllocated],
) -> None:
    result = candidates.nodes(3, allocatable={"cpu": [4, NAN, 4], "memory": 8}, requested={"cpu": [1, 1, NAN]})
    assert strategy(EVEN).score(asking(1000, 4), result).tolist() == [50, 0, 0]


def test_the_filter_counts_what_is_stated_and_the_number_of_pods() -> None:
    pod = candidates.pod({"cpu": 1.0, "memory": 0.0, FOO: 1.0}, nonzero={"cpu": 1.0, "memory": 200 * MIB})
    result = candidates.nodes(
        5,
        allocatable={"cpu": [2, 2, 2, NAN, 2], "memory": 1, FOO: [1, 1, 0, NAN, 1], "pods": [110, 110, 110, NAN, 3]},
        requested={"cpu": [1, 1.001, 0, 0, 0], "memory": 5},
        pods=[0, 0, 0, 9, 3],
    )
    refused = {reason: mask.tolist() for reason, mask in allocation.Fit().refuse(pod, result).items()}
    assert refused == {
        "less cpu is left than the pod requests": [False, True, False, False, False],
        "less intel.com/foo is left than the pod requests": [False, False, True, False, False],
        "the node has as many pods as it may have": [False, False, False, False, True],
    }
    sentences = [allocation.Fit().needs(pod, result, index) for index in range(5)]
    assert sentences == [
        [],
        ["cpu: the pod requests 1 cores, 0.999 cores of 2 cores are left"],
        ["intel.com/foo: the pod requests 1, 0 of 0 are left"],
        [],
        ["pods: 3 of 3 are there"],
    ]


def test_a_sum_of_tenths_of_a_core_fills_a_node_to_the_brim() -> None:
    held = sum([0.1] * 7)  # 0.7 less the last bit
    result = candidates.nodes(1, allocatable={"cpu": 0.8}, requested={"cpu": held})
    assert allocation.Fit().refuse(candidates.pod({"cpu": 0.1}), result) == {}
    assert MostAllocated({"cpu": 1.0}).score(candidates.pod({"cpu": 0.1}), result).tolist() == [100]


@pytest.mark.slow
@given(
    st.lists(st.tuples(*[st.integers(0, 10**13)] * 6), min_size=1, max_size=8), st.tuples(*[st.integers(1, 100)] * 2)
)
@often
def test_every_score_is_that_of_a_plain_loop_in_whole_numbers(
    rows: list[tuple[int, int, int, int, int, int]], weights: tuple[int, int]
) -> None:
    cpu, cpu_held, cpu_asked, memory, memory_held, memory_asked = np.array(rows, dtype=np.int64).T
    cpu, cpu_held, cpu_asked = (each % 10**6 for each in (cpu, cpu_held, cpu_asked))
    cpu_asked[:], memory_asked[:] = cpu_asked[0], memory_asked[0]
    held = {"cpu": cpu_held / 1000, "memory": memory_held}
    result = candidates.nodes(len(rows), allocatable={"cpu": cpu / 1000, "memory": memory}, requested=held)
    by_weight = dict(zip(("cpu", "memory"), map(float, weights), strict=True))
    pod = asking(float(cpu_asked[0]), float(memory_asked[0]))
    tables = [
        [(there, held + asked) for there, held, asked in (row[:3], row[3:])]
        for row in np.array([cpu, cpu_held, cpu_asked, memory, memory_held, memory_asked]).T.tolist()
    ]
    most, least, ratio = zip(*(plain(table, weights) for table in tables), strict=True)
    assert MostAllocated(by_weight).score(pod, result).tolist() == list(most)
    assert LeastAllocated(by_weight).score(pod, result).tolist() == list(least)
    assert RequestedToCapacityRatio(by_weight, PACK).score(pod, result).tolist() == list(ratio)


def plain(table: list[tuple[int, int]], weights: tuple[int, int]) -> tuple[int, int, int]:
    """Return the scores of one node: most, least, and the ratio on a straight line, in Python's own whole numbers."""
    there = [(capacity, asked, weight) for (capacity, asked), weight in zip(table, weights, strict=True) if capacity]
    total = sum(weight for _, _, weight in there)
    if not there:
        return 0, 0, 0
    most = [min(asked, capacity) * 100 // capacity for capacity, asked, _ in there]
    least = [0 if asked > capacity else (capacity - asked) * 100 // capacity for capacity, asked, _ in there]
    scored = [(score, weight) for score, (_, _, weight) in zip(most, there, strict=True) if score]
    above, below = sum(score * weight for score, weight in scored), sum(weight for _, weight in scored)

    def mean(scores: list[int]) -> int:
        return sum(score * weight for score, (_, _, weight) in zip(scores, there, strict=True)) // total

    return mean(most), mean(least), (2 * above + below) // (2 * below) if below else 0


def test_amounts_are_rounded_up_as_the_api_does() -> None:
    result: NDArray[np.float64] = allocation.whole("cpu", np.array([0.0001, 0.3, 1, NAN]))
    np.testing.assert_equal(result, [1, 300, 1000, NAN])
    assert allocation.whole("memory", 0.4) == 1
