"""What is forgotten of workload classes, and how much is kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.partition.partition import Partition
from processors.rows.name_index import NameIndex
from processors.workload.pod_class import Facts
from schemas import codec
from schemas.messages.estimate import Availability, ClassRoom
from schemas.messages.telemetry import MAXIMUM_PODS
from tests.support.processors.mix import configured, pod, rows_of, steady
from tests.support.processors.telemetry import block, facts, stored, usage


@pytest.mark.slow
def test_pod_usage_that_comes_twice_counts_once() -> None:
    messages = steady(range(30), {"a": 2, "b": 1})
    messages += steady(range(30, 40), {"a": 2, "b": 1}, cost=(0.7, 2e9))
    usage = [message for message in messages if ".pods." in message[0]]
    twice = [message for message in messages for _ in range(2 if message in usage else 1)]
    once = Partition(configured(), 0).fold(messages)[0]
    assert Partition(configured(), 0).fold([*twice, *usage])[0] == once


def room_by_memory(held: Callable[[int], float]) -> ClassRoom:
    """Return what fits of a class whose pods hold so many bytes in each of some seconds."""
    partition, rows = Partition(configured(), 0), list[Availability]()
    for second in range(25):
        messages = steady(range(second, second + 1), {"a": 2}, cost=(0.01, held(second)))
        rows += rows_of(partition.fold(messages)[0])
    assert rows[-1].classes is not None
    return rows[-1].classes["a"]


@pytest.mark.slow
def test_while_the_memory_of_pods_grows_little_is_sure_of_what_fits() -> None:
    growing, still = room_by_memory(lambda second: 2e8 * 1.08**second), room_by_memory(lambda _: 2e8 * 1.08**24)
    assert growing.binding == still.binding == "memory"
    assert growing.lower < 0.8 * still.lower


@pytest.mark.slow
def test_a_forgotten_node_loses_its_classes_and_its_pods_names() -> None:
    partition = Partition(configured(), 0)
    partition.fold([stored(facts("n", "a-0", "real")), *steady(range(5), {"a": 1})])
    for second in range(0, 4000, 30):
        partition.fold([stored(block("here", second))])
    assert partition.nodes == 1
    outputs, _ = partition.fold([*steady(range(4000, 4003), {"a": 1})])
    assert {name for row in rows_of(outputs) for name in row.classes or {}} <= {"a"}


def test_names_that_nobody_uses_are_dropped() -> None:
    index = NameIndex()
    numbers = [index.number(f"job-{number}") for number in range(3000)]
    moved = index.tidy(np.array([5, 2999, -1, 5]))
    assert moved is not None
    assert index.names == ["job-5", "job-2999"]
    assert moved[numbers[5]] == 0
    assert moved[numbers[6]] == -1
    assert index.number("job-2999") == moved[2999] == 1


@pytest.mark.slow
def test_jobs_with_a_new_name_for_each_run_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processors.rows.name_index._SPARE", 8)
    partition = Partition(configured(estimate_classes="1"), 0)
    for second in range(60):
        partition.fold([stored(block("n", second)), stored(usage("n", second, [pod("u", f"job-{second}", 0.1, 1e6)]))])
    assert len(partition._state.workloads._index) <= 12
    row = rows_of(partition.fold([stored(block("n", 60))])[0])[-1]
    assert list(row.classes or {}) == ["job-59"]


def test_facts_are_bounded_per_node() -> None:
    present = Facts()
    for number in range(MAXIMUM_PODS + 5):
        present.learn(facts("n", f"u{number}", "w", number))
    assert "u4" not in present.pods("n")
    assert present.pods("n")["u5"].workload == "w"
    again = Facts()
    again.load(present.dump())
    assert again.pods("n")[f"u{MAXIMUM_PODS + 4}"].workload == "w"
    present.forget({"n"}, {}, 0, 1)
    assert not present.pods("n")


number = st.one_of(st.none(), st.floats(0, 1e18), st.sampled_from([0.0, 1e-300, 1e18]))
ratio = st.one_of(st.none(), st.floats(0, 1))


@pytest.mark.slow
@given(
    pods=st.lists(
        st.tuples(number, number, ratio, ratio, st.sampled_from(["a", "b", None]), st.integers(0, 3)), max_size=6
    ),
    span_us=st.integers(1, 60_000_000),
    size=st.sampled_from([1, 1 << 33, 2**53 - 1]),
)
@settings(max_examples=40, deadline=None)
def test_no_pod_usage_that_the_schema_takes_stops_a_fold(pods: list[Any], span_us: int, size: int) -> None:
    listed = [
        pod(f"u{index}", name, cores, memory, cpu_pressure=pressed, throttled=held, containers=containers)
        for index, (cores, memory, pressed, held, name, containers) in enumerate(pods)
    ]
    partition = Partition(configured(), 0)
    for second in range(5):
        odd = block("x", second, cpu_util=1.0, cpu_pressure=0.5).model_copy(update={"memory_bytes": size})
        messages = usage("x", second + 1, listed, span_us=span_us)
        outputs, refusals = partition.fold([stored(odd), stored(messages), stored(block("good", second))])
        assert not refusals
        assert any(output.subject == "spazio.availability.good" for output in outputs)
        for output in outputs:
            codec.decode(type(output.message), codec.encode(output.message))
