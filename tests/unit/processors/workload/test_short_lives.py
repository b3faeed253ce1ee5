"""Pods that live for a few seconds: what a soaking class takes is known soon, and its kind from other nodes."""

from typing import Any

import numpy as np
import pytest

from processors.partition.partition import Partition
from processors.workload import classes, cost
from schemas import codec
from schemas.messages.estimate import ClassSum, Model
from tests.support.processors.mix import ALLOWED, configured, pod, rows_of, sampled, share_of
from tests.support.processors.telemetry import NAMES, stored, usage


def watched(kind: float, seconds: float) -> classes.State:
    """Return a node that has watched one class, whose pods take a core each, for so long."""
    state = classes.init(1, 1)
    demand = state.demand._replace(
        mean=np.array([[1.0]]), variance=np.array([[1e-4]]), seconds=np.array([[seconds]]), age=np.array([[seconds]])
    )
    return state._replace(
        label=np.zeros((1, 1), dtype=np.int64), pods=np.ones((1, 1)), demand=demand, kind=np.full((1, 1), kind),
        held=np.full((1, 1), seconds), most=np.full((1, 1), 1e8),
    )  # fmt: skip


def deviation(kind: float, seconds: float) -> float:
    """Return by how much the cost of such a class is unsure, relative."""
    weighed = cost.weigh(watched(kind, seconds), np.array([[[0.5, 1e8]]]), deviation=0.5)
    return float(np.sqrt(weighed.variance[0, 0, 0]) / weighed.value[0, 0, 0])


def test_threads_that_never_sleep_are_known_within_seconds_and_those_that_do_are_not() -> None:
    assert deviation(1.0, 10) < 0.06
    assert deviation(0.0, 10) > 0.2
    assert deviation(1.0, 2) > 0.15
    assert deviation(0.0, 600) < 0.06


@pytest.mark.parametrize(("age", "label", "expected"), [(9.0, 0, 1.0), (60.0, 0, 0.2), (9.0, 3, 0.2)])
def test_a_node_takes_a_class_for_what_it_is_elsewhere_until_it_has_run_it_for_long(
    age: float, label: int, expected: float
) -> None:
    """However short the time is for which its memory has been steady."""
    state = watched(0.2, age)._replace(label=np.full((1, 1), label, dtype=np.int64), held=np.zeros((1, 1)))
    adopted = classes.adopt_soaking(state, np.array([0], dtype=np.int64))
    assert adopted.kind[0, 0] == expected
    assert state.kind[0, 0] == 0.2


def reported(soaking: float, **declared: Any) -> str | None:
    """Return a node's kind of a class of which it has run a pod for two seconds, and the cluster knows so much."""
    model = Model(
        scope="global", at_us=1, features=list(configured().model.features), moment=[0.0] * 15, cost=[0.0] * 5, pods=0,
        nodes=9, classes={"a": ClassSum(pods=9, cpu=9, memory=9e8, soaking=soaking, nodes=9)},
    )  # fmt: skip
    partition = Partition(configured(), 0)
    messages = [stored(sampled("n", 0, 1.0, 1e9, 1))]
    for second in range(1, 3):
        messages.append(stored(usage("n", second, [pod("p", "a", 1.0, 1e8)], **declared)))
        messages.append(stored(sampled("n", second, 1.0, 1e9, 1)))
    outputs = list(partition.fold(messages)[0])
    more = [stored(usage("n", 3, [pod("p", "a", 1.0, 1e8)], **declared)), stored(sampled("n", 3, 1.0, 1e9, 1))]
    outputs = list(partition.fold([(NAMES.model, codec.encode(model)), *more])[0])
    rooms = rows_of(outputs)[-1].classes
    assert rooms is not None
    return rooms["a"].kind


def test_the_cluster_says_of_which_kind_a_class_is_and_what_pods_declare_comes_before() -> None:
    assert reported(soaking=8) == "soaking"
    assert reported(soaking=1) == "serving"
    assert reported(soaking=8, kinds=["serving"]) == "serving"


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "kind", "share"), [(1.0, "soaking", 1 / 32), (0.4, "serving", share_of(0.4))])
@pytest.mark.parametrize("unsteady", [0.0, 0.1])
def test_pods_that_live_for_a_second_each_are_known_by_what_ends_with_them(
    cores: float, kind: str, share: float, unsteady: float
) -> None:
    noise = np.random.default_rng(1).normal(0, unsteady, 60)
    partition = Partition(configured(), 0)
    messages = [stored(sampled("n", second, 1.0, 1e9, 0)) for second in range(20)]
    messages += [stored(usage("n", second, [], system_cpu_cores=1.0)) for second in range(1, 20)]
    for second in range(20, 60):
        lived = second * 0.37 % 1  # the part of the second since the newest pod's start
        rest = max(0.0, 1.0 + cores * (1 - lived) + 0.4 * noise[second])
        only = pod(f"p{second}", "a", cores * lived, 1e8)
        messages.append(stored(usage("n", second, [only], ages=[0], system_cpu_cores=rest)))
        messages.append(stored(sampled("n", second, 1.0 + cores, 1e9, 1)))
    last = rows_of(partition.fold(messages)[0])[-1]
    assert last.classes is not None
    estimated = last.classes["a"]
    assert estimated.kind == kind
    assert estimated.cpu == pytest.approx(share, rel=0.2)
    assert last.available == pytest.approx(estimated.available)
    assert last.lower > 0


@pytest.mark.slow
def test_brief_pods_of_ever_new_classes_take_room_as_what_is_used_in_no_pod() -> None:
    partition = Partition(configured(), 0)
    messages = [stored(sampled("n", second, 1.0, 1e9, 0)) for second in range(10)]
    messages.append(stored(usage("n", 10, [], system_cpu_cores=1.0)))
    for second in range(11, 90):
        listed = [pod("old", "b", 0.5, 1e8), pod(f"p{second}", f"job-{second}", 4.0, 1e8)]
        messages.append(stored(usage("n", second, listed, ages=[600, 0], system_cpu_cores=5.0)))
        messages.append(stored(sampled("n", second, 9.5, 1e9, 2)))
    last = rows_of(partition.fold(messages)[0])[-1]
    assert (last.free or {})["cpu"] < 1 - 5 / ALLOWED


def test_a_pod_that_has_only_begun_is_not_taken_for_one_that_ends_soon() -> None:
    partition = Partition(configured(), 0)
    messages = [stored(sampled("n", second, 1.0, 1e9, 0)) for second in range(10)]
    messages.append(stored(usage("n", 10, [], system_cpu_cores=1.0)))
    priors = []
    for age in range(6):
        only = pod("p", "a", 0.3 if age == 0 else 1.0, 1e8)
        messages.append(stored(usage("n", 11 + age, [only], ages=[age], system_cpu_cores=1.0)))
        messages.append(stored(sampled("n", 11 + age, 2.0, 1e9, 1)))
        last = rows_of(partition.fold(messages)[0])[-1]
        priors.append((last.classes or {})["a"].prior)
        messages.clear()
    assert priors[:2] == [1.0, 1.0]
    assert (priors[-1] or 0.0) < 0.9
    room = (last.classes or {})["a"]
    assert room.kind == "soaking"
    assert room.cpu > 0.6 / 32


@pytest.mark.slow
def test_what_begins_to_run_beside_brief_pods_and_what_garbage_says_is_not_what_they_take() -> None:
    partition = Partition(configured(), 0)
    messages = [stored(sampled("n", second, 1.0, 1e9, 0)) for second in range(20)]
    messages += [stored(usage("n", second, [], system_cpu_cores=1.0)) for second in range(1, 20)]
    for second in range(20, 100):
        lived = second * 0.37 % 1
        beside = 6.0 if 60 <= second < 90 else 1e18 if second >= 90 else 0.0
        rest = 1.0 + 0.4 * (1 - lived) + beside
        messages.append(stored(usage("n", second, [pod(f"p{second}", "a", 0.4 * lived, 1e8)], ages=[0],
                                     system_cpu_cores=rest)))  # fmt: skip
        messages.append(stored(sampled("n", second, min(1.4 + beside, 16.0), 1e9, 1)))
    last = rows_of(partition.fold(messages)[0])[-1]
    assert last.classes is not None
    assert last.classes["a"].cpu < share_of(4 * 0.4 + 0.1)
    assert (last.free or {})["cpu"] < 0.6


def test_a_node_whose_first_block_has_a_pod_that_has_just_begun_has_no_room_of_its_systems() -> None:
    partition = Partition(configured(), 0)
    messages = []
    for second in range(6):
        listed = [pod("old", "b", 0.5, 1e8), pod("new", "a", 0.2, 1e8)]
        messages.append(stored(sampled("n", second, 7.0, 1e9, 2)))
        messages.append(stored(usage("n", second, listed, ages=[600, second], system_cpu_cores=6.0)))
    last = rows_of(partition.fold(messages)[0])[-1]
    assert (last.free or {})["cpu"] < 1 - 6 / ALLOWED
