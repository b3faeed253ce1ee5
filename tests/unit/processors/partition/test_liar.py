"""One node of twelve may say what it likes: what fits on the others stays within 10 % or one pod."""

import os

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from tests.support.processors import liar
from tests.support.processors.liar import LIAR, Lie
from tests.support.processors.mix import configured, rows_of
from tests.support.processors.telemetry import block, stored

CASES = int(os.environ.get("LIAR_CASES", "60"))

HUGE = tuple(("a", 1e18, 1e18) for _ in range(50))
NOTHING = tuple((name, 1e-9, 1.0) for name in "ab" for _ in range(60))
STRANGE = tuple((f"z{number % 8}", 3000.0, 1e13) for number in range(60))
FACTS = NodeFacts(
    node="n", uid="u", version=1, at_us=1, created_us=1, ready=True, unschedulable=False,
    allocatable={}, capacity={"cpu": 4.0, "memory": 8.0 * (1 << 30)}, labels={}, annotations={}, taints=[],
)  # fmt: skip
PODS = (("pods", 1e6), ("cpu_util", 1.0), ("memory_util", 1.0))
LIES = {
    "65,536 cores and as much memory as the schema takes": [Lie(cpus=65_536, memory_bytes=2**53 - 1, pods=HUGE)],
    "pods that take next to nothing": [Lie(pods=NOTHING, metrics=(("pods", 120.0),))],
    "a flood of starts of costly classes": [Lie(pods=STRANGE, cpus=65_536), Lie(pods=())],
    "a flood of starts of one class": [Lie(pods=tuple(("b", 1.2, 5e8) for _ in range(90))), Lie(pods=())],
    "a million pods": [Lie(metrics=PODS, cpus=65_536), Lie(metrics=(("pods", 0.0),), cpus=65_536)],
    "three blocks of a far future a second": [Lie(seconds=10_000_000, seq=10_000_000, times=3, pods=HUGE)],
    "a clock that is 45 seconds ahead": [Lie(seconds=45, boot="other", pods=HUGE)],
    "a model of its own": [Lie(edge=(1.0, 1e18, 1.0), cpus=65_536, memory_bytes=2**53 - 1, pods=HUGE)],
    "facts of itself and of another": [Lie(cpus=2048, memory_bytes=1 << 44, pods=HUGE, facts=True)],
    "another boot each second": [Lie(boot=f"boot {number}", pods=HUGE) for number in range(5)],
}


@pytest.mark.slow
@pytest.mark.parametrize("present", [True, False], ids=["from within", "new"])
@pytest.mark.parametrize("name", LIES)
def test_what_a_review_found_a_liar_to_do_moves_no_other_node(name: str, present: bool) -> None:
    messages, cluster = liar.run(LIES[name], sized=present)
    assert liar.moved(messages, liar.baseline(sized=present)) == []
    assert {model.nodes for model in cluster.models} <= {11, 12}
    assert len(cluster.models) >= liar.LONG - 2


@pytest.mark.slow
def test_twelve_honest_nodes_are_not_outvoted() -> None:
    rows = [row for second in liar.baseline(sized=True) for row in second.values()]
    assert all(row.outvoted is None for row in rows)
    assert all(row.mix for row in rows)


@pytest.mark.slow
def test_a_node_that_is_outvoted_is_named_and_no_other() -> None:
    messages, _ = liar.run([Lie(pods=tuple(("a", 8.0, 1e9) for _ in range(2)))], seconds=2 * liar.LONG)
    assert messages[-1][LIAR].outvoted == ["class a"]
    assert {node for node, row in messages[-1].items() if row.outvoted} == {LIAR}
    messages, _ = liar.run([Lie(cpus=65_536)])
    assert messages[-1][LIAR].outvoted == ["size"]


@pytest.mark.slow
def test_no_node_raises_the_size_that_it_is_held_against_or_lowers_that_of_another() -> None:
    reported, _ = liar.run([Lie(cpus=2048, memory_bytes=1 << 44, facts=True)], seconds=4)
    own, other = reported[-1][LIAR], reported[-1]["n1"]
    assert own.outvoted == ["size"]
    assert (own.limits or {})["cpu"] <= 16
    assert other.outvoted is None
    assert liar.moved(reported, liar.baseline(sized=True, seconds=4)) == []


def test_a_size_that_no_machine_has_or_that_the_facts_contradict_is_not_believed() -> None:
    def believed(*before: tuple[str, bytes]) -> Availability:
        large = block("n", 0, cpu_util=0.1).model_copy(update={"cpus": 65_536, "memory_bytes": 2**50})
        return rows_of(Partition(configured(), 0).fold([*before, stored(large)])[0])[0]

    row = believed(stored(FACTS))
    assert row.outvoted == ["size"]
    assert row.limits is not None
    assert row.limits["cpu"] < 4
    assert row.limits["memory"] < 8 << 30
    row = believed()
    assert row.outvoted == ["size"]
    assert row.limits is not None
    assert row.limits["cpu"] < 4096


def test_a_size_that_was_believed_is_held_against_facts_that_come_later() -> None:
    partition = Partition(configured(), 0)
    large = [stored(block("n", second, cpu_util=0.1).model_copy(update={"cpus": 64})) for second in range(20)]
    (before, *_) = rows_of(partition.fold(large[:1])[0])
    (*_, after) = rows_of(partition.fold([stored(FACTS), *large[1:]])[0])
    assert before.outvoted is None
    assert after.outvoted == ["size"]
    assert before.limits is not None
    assert after.limits is not None
    assert after.limits["cpu"] < 4 < before.limits["cpu"]


numbers = st.one_of(st.sampled_from([0.0, 1e-9, 0.5, 1.2, 100.0, 1e18]), st.floats(0, 1e18))
ratios = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))
lists = st.lists(st.tuples(st.sampled_from(["a", "b", "z1", "z2", "z3", "z4"]), numbers, numbers), max_size=6)
lies = st.builds(
    Lie,
    cpus=st.sampled_from([None, 1, 64, 4096, 65_536]),
    memory_bytes=st.sampled_from([None, 1, 1 << 30, 1 << 46, 2**53 - 1]),
    metrics=st.dictionaries(
        st.sampled_from(["cpu_util", "cpu_pressure", "memory_util", "cpu_throttled", "disk_util"]), ratios
    ).flatmap(
        lambda metrics: st.floats(0, 1e6).map(lambda pods: (*metrics.items(), ("pods", pods), ("procs_running", pods)))
    ),
    pods=st.none() | st.tuples(lists, st.integers(1, 40)).map(lambda each: tuple(each[0] * each[1])),
    seq=st.sampled_from([0, 0, 0, 1, 70, 10_000_000, 2**53]),
    seconds=st.sampled_from([0, 0, 0, 100, 10_000_000, -10_000_000]),
    boot=st.sampled_from(["boot", "boot", "other", "third"]),
    edge=st.none() | st.tuples(ratios, numbers, st.floats(-1, 1)),
    times=st.integers(1, 4),
    event=st.booleans(),
    facts=st.booleans(),
)


@pytest.mark.slow
@given(messages=st.lists(lies, min_size=1, max_size=3), present=st.booleans())
@examples(max_examples=CASES, deadline=None, derandomize=CASES <= 200)
def test_nothing_that_the_schema_lets_a_liar_say_moves_another_node(messages: list[Lie], present: bool) -> None:
    rows, _ = liar.run(messages, sized=present)
    assert liar.moved(rows, liar.baseline(sized=present)) == []
