"""Workload classes of nodes and cluster: who has which class and slot, what is reported, and what is bounded."""

import numpy as np
import pytest

from processors.partition import aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import MAXIMUM_CLASSES, ClassSum, Model
from tests.support.processors.mix import (
    ALLOWED,
    CORES,
    FREE_MEMORY,
    configured,
    pod,
    rows_of,
    sampled,
    share_of,
    steady,
    sums_of,
)
from tests.support.processors.telemetry import NAMES, START, block, event, facts, stored, usage


def test_what_kubernetes_says_of_a_pod_comes_before_what_its_agent_says() -> None:
    partition = Partition(configured(), 0)
    reports = [
        pod("u1", "image", 0.5, 1e9),
        pod("u2", "image", 0.5, 1e9),
        pod("u3", None, 0.5, 1e9),
        pod("u4", None, 0.5, 1e9),
    ]

    def classes(second: int, *before: Message) -> dict[str, int]:
        messages = [stored(block("n", second)), *map(stored, before), stored(usage("n", second, reports))]
        (row,) = rows_of(partition.fold([*messages, stored(block("n", second + 1))])[0][-2:])
        return {name: item.pods for name, item in (row.classes or {}).items()}

    assert classes(0) == {"image": 2}
    assert classes(2, facts("n", "u1", "shop/api", 5), facts("n", "u3", "shop/api", 6)) == {"shop/api": 2, "image": 1}
    assert classes(4, facts("n", "u1", "old", 4)) == {"shop/api": 2, "image": 1}
    assert classes(6, facts("n", "u3", "shop/api", 7, deleted=True)) == {"shop/api": 1, "image": 1}
    assert classes(8, facts("n", "u1", "shop/api", 8, phase="Succeeded")) == {"image": 2, "shop/api": 0}
    assert classes(10, facts("-", "u1", "shop/api", 9)) == {"image": 2, "shop/api": 0}


def test_a_pod_without_running_containers_is_not_counted() -> None:
    partition = Partition(configured(), 0)
    listed = [pod("u1", "a", 0.5, 1e9), pod("u2", "a", 0.0, 1e6, containers=0)]
    outputs, _ = partition.fold([stored(block("n", 0)), stored(usage("n", 1, listed)), stored(block("n", 1))])
    assert [item.pods for item in (rows_of(outputs)[-1].classes or {}).values()] == [1]


@pytest.mark.slow
def test_a_node_tells_how_many_pods_fit_of_a_class_that_runs_elsewhere_alone() -> None:
    teacher, pupil = Partition(configured(), 0), Partition(configured(), 1)
    models = sums_of(teacher.fold(steady(range(90), {"shop/web": 6, "shop/ml": 2}))[0])
    learned = aggregate.merge({0: models[-1]}, models[-1].at_us // 1_000_000, silent_seconds=30)
    assert learned is not None
    assert learned.classes is not None
    assert learned.classes["shop/web"].pods == pytest.approx(6, rel=0.01)
    assert learned.classes["shop/web"].cpu == pytest.approx(3, rel=0.01)
    first = stored(sampled("new", 0, 2.0, 4e9, 0))
    (row,) = rows_of(pupil.fold([(NAMES.model, codec.encode(learned)), first])[0])
    assert row.classes is not None
    assert list(row.classes) == ["shop/web", "shop/ml"]
    assert row.classes["shop/web"].pods == 0
    assert row.classes["shop/web"].available == pytest.approx((1 - 2 / ALLOWED) / share_of(0.5), rel=0.02)
    assert row.classes["shop/web"].lower < 0.7 * row.classes["shop/web"].available


def test_what_a_node_only_assumes_of_a_class_is_in_no_sum() -> None:
    partition = Partition(configured(), 0)
    present = Model(
        scope="global", at_us=1, features=list(configured().model.features), moment=[0.0] * 15, cost=[0.0] * 5, pods=0,
        nodes=1, classes={"a": ClassSum(pods=5, cpu=5, memory=5e9), "b": ClassSum(pods=5, cpu=5, memory=5e9)},
    )  # fmt: skip
    unknown = [pod("u", "a", None, None)]
    messages = [stored(block("n", 0)), stored(usage("n", 1, unknown)), stored(block("n", 1)), stored(block("n", 2))]
    outputs, _ = partition.fold([(NAMES.model, codec.encode(present)), *messages])
    assert {name for row in rows_of(outputs) for name in row.classes or {}} == {"a", "b"}
    sums = [item for model in sums_of(outputs) for item in (model.classes or {}).values()]
    assert {(item.pods, item.cpu, item.memory) for item in sums} <= {(0, 0, 0)}


@pytest.mark.slow
def test_a_class_that_is_gone_keeps_its_cost_and_fades_back_into_the_clusters() -> None:
    partition = Partition(configured(estimate_memory_seconds="20"), 0)
    present = Model(
        scope="global", at_us=1, features=list(configured().model.features), moment=[0.0] * 15, cost=[0.0] * 5, pods=0,
        nodes=1, classes={"a": ClassSum(pods=5, cpu=5, memory=5e9)},
    )  # fmt: skip
    partition.fold([(NAMES.model, codec.encode(present)), *steady(range(100), {"a": 2})])

    def cores(begin: int, end: int) -> float:
        row = rows_of(partition.fold(steady(range(begin, end), {"b": 1}))[0])[-1]
        return (row.classes or {})["a"].cpu

    assert cores(100, 120) == pytest.approx(share_of(0.5), rel=0.1)
    assert cores(120, 140) == pytest.approx(share_of(0.5), rel=0.4)
    assert cores(140, 340) == pytest.approx(share_of(1.0), rel=0.05)


def test_a_newcomer_takes_the_slot_of_the_class_that_has_been_without_pods_for_longest() -> None:
    partition = Partition(configured(estimate_classes="2"), 0)

    def label_counts(begin: int, running: dict[str, int]) -> dict[str, int]:
        row = rows_of(partition.fold(steady(range(begin, begin + 5), running))[0])[-1]
        return {name: item.pods for name, item in (row.classes or {}).items()}

    assert label_counts(0, {"a": 1, "b": 3}) == {"b": 3, "a": 1}
    assert label_counts(5, {"a": 1, "b": 3, "c": 9}) == {"b": 3, "a": 1}
    assert label_counts(10, {"b": 3}) == {"b": 3, "a": 0}
    assert label_counts(15, {}) == {"a": 0, "b": 0}
    assert label_counts(20, {"c": 1}) == {"c": 1, "b": 0}
    assert label_counts(25, {"d": 1, "e": 2}) == {"e": 2, "d": 1}


def test_a_message_lists_the_classes_with_most_pods_and_no_more_than_it_may() -> None:
    classes = {
        f"ns/{number:03}": ClassSum(pods=1 + number % 50, cpu=1, memory=1e9) for number in range(MAXIMUM_CLASSES)
    }
    present = Model(
        scope="global", at_us=1, features=list(configured().model.features), moment=[0.0] * 15, cost=[0.0] * 5, pods=0,
        nodes=1, classes=classes,
    )  # fmt: skip
    partition = Partition(configured(), 0)
    outputs, _ = partition.fold([(NAMES.model, codec.encode(present)), *steady(range(5), {"own/a": 1, "own/b": 2})])
    listed = list(rows_of(outputs)[-1].classes or {})
    assert len(listed) == MAXIMUM_CLASSES
    assert listed[:4] == ["own/b", "own/a", "ns/049", "ns/048"]
    assert "ns/050" not in listed


def test_sums_of_partitions_are_added_by_class_and_the_fullest_are_kept() -> None:
    def model(number: int, classes: dict[str, ClassSum] | None) -> Model:
        return Model(
            scope="partition", partition=number, at_us=START * 1_000_000, features=["cpu", "memory"], moment=[0.0] * 3,
            cost=[0.0] * 2, pods=1, nodes=1, classes=classes,
        )  # fmt: skip

    many = {f"c{number:02}": ClassSum(pods=1, cpu=1, memory=1) for number in range(MAXIMUM_CLASSES)}
    more = {"zz": ClassSum(pods=2, cpu=3, memory=4), "c63": ClassSum(pods=1, cpu=2, memory=3)}
    whole = aggregate.merge({1: model(1, more), 0: model(0, many), 2: model(2, None)}, START, silent_seconds=9)
    assert whole is not None
    assert whole.classes is not None
    assert len(whole.classes) == MAXIMUM_CLASSES
    assert list(whole.classes)[:3] == ["c63", "zz", "c00"]
    assert whole.classes["c63"] == ClassSum(pods=2, cpu=3, memory=4)
    assert aggregate.merge({2: model(2, None)}, START, silent_seconds=9) == model(2, None).model_copy(
        update={"scope": "global", "partition": None}
    )


def test_a_node_without_pod_usage_says_nothing_of_classes() -> None:
    both = [*steady(range(5), {"a": 2}), *(stored(block("plain", second)) for second in range(5))]
    rows = rows_of(Partition(configured(), 0).fold(both)[0])
    assert {row.classes is None for row in rows if row.node == "plain"} == {True}
    rows = rows_of(Partition(configured(estimate_classes="0"), 0).fold(both)[0])
    assert all(row.classes is None for row in rows)


def test_usage_that_cannot_be_laid_on_a_block_is_left_out() -> None:
    listed = [pod("u", "a", 0.5, 1e9)]
    partition = Partition(configured(), 0)
    odd = [
        usage("n", 1, listed),
        usage("n", 400, listed),
        usage("n", 2, listed).model_copy(update={"boot": "another"}),
        usage("stranger", 1, listed),
    ]
    blocks = [stored(block("n", second)) for second in range(4)]
    outputs, refusals = partition.fold([stored(odd[0]), *blocks, *map(stored, odd[1:]), stored(block("n", 4))])
    assert not refusals
    assert all(row.classes is None for row in rows_of(outputs))


@pytest.mark.slow
def test_a_change_of_a_classs_room_is_reported_at_once() -> None:
    partition = Partition(
        configured(estimate_report_seconds="1000", estimate_change_pods="1.5", estimate_form="least_squares"), 0
    )
    calm = steady(range(60), {"a": 1}, cost=(0.001, 1e9))
    partition.fold(calm)
    # 61 more fit at first, and each second one less: a message is due after every third.
    less = [stored(sampled("n", second, 1.0, 3e9 + (second - 59) * 1e9, 1)) for second in range(60, 69)]
    messages = rows_of(partition.fold(less)[0])
    assert np.diff([row.seq for row in messages]).tolist() == [3] * (len(messages) - 1)
    assert len(messages) >= 2
    assert {row.available for row in messages} == {109.0}  # of any pod, for which the pod limit binds


@pytest.mark.slow
def test_a_class_is_learned_in_churn_from_pods_that_run() -> None:
    partition = Partition(configured(estimate_churn_limit_seconds="10"), 0)

    def cores(begin: int, end: int, running: dict[str, int]) -> float:
        """Return what a pod of the class takes, while containers come all the time."""
        messages = [
            message
            for second in range(begin, end)
            for message in (
                stored(event("n", second + 0.5, container=f"c{second}")),
                *steady([second], running, cost=(1.5, 1e9)),
            )
        ]
        row = rows_of(partition.fold(messages)[0])[-1]
        return (row.classes or {})["a"].cpu

    assert cores(0, 9, {"a": 2}) == pytest.approx(share_of(1.5), rel=0.15)
    assert cores(9, 40, {"a": 2}) == pytest.approx(share_of(1.5), rel=0.02)
    assert cores(40, 60, {"a": 5}) == pytest.approx(share_of(1.5), rel=0.02)


@pytest.mark.slow
def test_no_class_takes_more_than_the_node_has() -> None:
    listed = [pod("u", "a", 1e6, 1e18)]
    messages = [
        message
        for second in range(60)
        for message in (stored(sampled("n", second, 8, 32e9, 1)), stored(usage("n", second + 1, listed)))
    ]
    sums = sums_of(Partition(configured(), 0).fold(messages)[0])[-1].classes
    assert sums is not None
    assert sums["a"].cpu / sums["a"].pods == pytest.approx(CORES)
    assert sums["a"].memory / sums["a"].pods == pytest.approx(FREE_MEMORY, rel=1e-4)


def test_what_was_reported_of_the_clusters_classes_outlives_a_restart() -> None:
    settings = configured(estimate_report_seconds="1000", estimate_change_pods="1.5")
    present = Model(
        scope="global", at_us=1, features=list(settings.model.features), moment=[0.0] * 15, cost=[0.0] * 5, pods=0,
        nodes=1, classes={"a": ClassSum(pods=5, cpu=0.005, memory=5e9)},
    )  # fmt: skip
    messages = [(NAMES.model, codec.encode(present))]
    messages += [stored(sampled("n", second, 1.0, 3e9 + second * 1e9, 0)) for second in range(12)]
    whole, first, second = Partition(settings, 0), Partition(settings, 0), Partition(settings, 0)
    reports = rows_of(whole.fold(messages)[0])
    assert len(reports) > 2
    before = rows_of(first.fold(messages[:6])[0])
    second.restore(first.snapshot())
    assert before + rows_of(second.fold(messages[6:])[0]) == reports


@pytest.mark.slow
def test_the_bound_holds_for_what_runs_as_well_as_for_what_was_started_last() -> None:
    heavy = [pod(f"a{number}", "a", 1.7, 1e9) for number in range(3)]
    light = [pod(f"b{number}", "b", 0.1, 1e8) for number in range(2)]
    partition = Partition(configured(), 0)
    messages = []
    for second in range(120):
        listed = heavy + light[: max(0, (second - 100) // 5)]
        cores = 1 + sum(each["cpu_cores"] for each in listed)
        messages += [stored(sampled("n", second, cores, 4e9, len(listed))), stored(usage("n", second + 1, listed))]
    row = rows_of(partition.fold(messages)[0])[-1]
    assert row.mix is not None
    assert row.mix["b"] > row.mix["a"]
    taken = 3 * share_of(1.7) + 2 * share_of(0.1)
    of_running = (1 - 1 / ALLOWED - taken) / (taken / 5)
    assert row.available > 1.3 * of_running
    assert 0 < row.lower < of_running


def test_a_class_that_gives_up_its_slot_starts_no_pods_by_that() -> None:
    partition, daemons = Partition(configured(), 0), {f"system/d{number}": 1 for number in range(8)}
    partition.fold(steady(range(0, 6000, 20), daemons, cost=(0.05, 1e8)))
    outputs, _ = partition.fold(steady(range(6000, 6006), daemons | {"shop/app": 2}, cost=(0.05, 1e8)))
    assert (rows_of(outputs)[-1].mix or {})["shop/app"] > 0.9
