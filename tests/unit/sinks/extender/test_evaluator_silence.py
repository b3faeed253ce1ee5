"""Nodes that are new, silent or gone: what the evaluator still gives away on them."""

import numpy as np
import pytest
from prometheus_client import REGISTRY

from schemas import codec
from schemas.messages.placement import Decision
from sinks.extender.evaluator import ALL_UNHEARD, NONE_HEARD, STARTING, UNDESCRIBED
from tests.support.extender.placement import (
    SECOND,
    START,
    STATIC,
    Bucket,
    Clock,
    Replica,
    asked,
    given,
    node,
    pod,
    report,
)
from tests.unit.sinks.extender.nodes import NAMES, reported_with_two_small_pods, seen


async def test_a_new_node_takes_one_pod_until_it_has_reported() -> None:
    replica = Replica(given(), Clock())
    state, now_us = replica.cluster_state, replica.clock.now_us
    for name, created_us in (("full", START - 3600 * SECOND), ("new", START), ("old", START - 3600 * SECOND)):
        state.describe(node(name, created_us=created_us))
    state.report(report("full", now_us, 0.0))
    assert await replica.place("p", ["full", "new"]) == "new"
    assert await replica.place("q", ["full", "new"]) is None
    assert await replica.place("q", ["full", "next"]) is None, "nothing is known of it, not even its size"
    # A node that has been there for long without a report has no agent, and takes what requests allow.
    assert [await replica.place(uid, ["full", "old"]) for uid in "qrs"] == ["old"] * 3
    # From its first report on, its room counts; the first pod still holds one place.
    state.report(report("new", now_us + SECOND, 3.0))
    replica.clock.pass_seconds(2)
    assert [await replica.place(uid, ["full", "new"]) for uid in "tuvw"] == ["new", "new", None, None]


async def test_a_node_without_facts_and_reports_is_refused_for_that_while_others_have_both() -> None:
    """No pod is on it, so that it takes not even the one of a new node, for as long as its facts do not come."""
    replica = Replica(given(), Clock())
    state = replica.cluster_state
    for name in ("full", "new"):
        state.describe(node(name))
    state.report(report("full", START, 0.0))
    assert await replica.place("p", ["full", "new"]) == "new"
    assert await replica.place("q", ["new", "next", "other"]) is None
    assert replica.decisions[-1].refused == {STARTING: 1, UNDESCRIBED: 2}
    assert {each.node: each.reason for each in replica.decisions[-1].refusals} == {
        "new": STARTING, "next": UNDESCRIBED, "other": UNDESCRIBED,
    }  # fmt: skip
    assert await replica.selector.preempt(asked("q"), {"next": []}) == {}
    state.describe(node("next"))
    assert await replica.place("q", ["new", "next", "other"]) == "next"


@pytest.mark.parametrize("belonging", [{"owner_kind": "DaemonSet"}, {"pod": STATIC}], ids=["DaemonSet", "static"])
async def test_pods_that_belong_to_a_new_node_do_not_count_for_the_one_that_it_takes(belonging: dict[str, str]) -> None:
    replica = Replica(given(), Clock())
    state = replica.cluster_state
    for name, created_us in (("full", START - 3600 * SECOND), ("new", START)):
        state.describe(node(name, created_us=created_us))
    state.report(report("full", START, 0.0))
    state.pods.hear(pod("proxy", 2, node="new", **belonging))
    assert await replica.place("p", ["full", "new"]) == "new"
    assert await replica.place("q", ["full", "new"]) is None
    state.pods.hear(pod("p", 3, node="new"))
    state.reservations.settle("p")
    assert await replica.place("q", ["full", "new"]) is None
    state.pods.hear(pod("p", 4, node="new", deleted=True))
    assert await replica.place("q", ["full", "new"]) == "new"


async def test_where_no_node_reports_new_nodes_pass_too() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("new"))
    assert [await replica.place(uid, ["new"]) for uid in "pq"] == ["new", "new"]


def test_pods_whose_evidence_is_awaited_count_only_while_their_node_reports() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 5.0, classes={"big": (3.0, 2.0)}, running=1))
    assert seen(replica, ["a"], workload="big").running.tolist() == [1.0]
    assert seen(replica, ["a"], workload="else").running.tolist() == [0.0]
    replica.clock.pass_seconds(5)
    assert seen(replica, ["a"], workload="big").running.tolist() == [1.0]
    replica.clock.pass_seconds(2)
    assert seen(replica, ["a"], workload="big").running.tolist() == [0.0]


def test_pods_that_wait_long_for_something_are_no_evidence_to_come_and_keep_their_room() -> None:
    replica = Replica(given(), Clock())
    state, clock = replica.cluster_state, replica.clock
    state.report(report("a", START, 60.0))
    for uid in ("never", "late"):
        state.pods.hear(pod(uid, 1, node="a"))

    def counted() -> list[float]:
        state.pods.age(clock.now_us)
        result = seen(replica, ["a"], workload="new")
        return [*result.starting.tolist(), *result.reserved.tolist()]

    clock.pass_seconds(59)
    assert counted() == [2.0, 2.0]
    clock.pass_seconds(2)
    assert counted() == [0.0, 2.0]
    state.pods.hear(pod("late", 2, node="a", phase="Running", at_us=clock.now_us))
    assert counted() == [1.0, 2.0]
    state.pods.hear(pod("never", 2, node="a", deleted=True))
    assert counted() == [1.0, 1.0]
    clock.pass_seconds(4)
    state.report(report("a", clock.now_us, 59.0))
    assert counted() == [0.0, 0.0]


def test_a_silent_node_keeps_its_capacity_less_the_pods_that_came_and_with_those_that_went() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.pods.hear(pod("old", 1, node="a", phase="Running", ready_us=START - 60 * SECOND))
    replica.cluster_state.report(report("a", START, 2.0))
    replica.clock.pass_seconds(60)
    assert seen(replica, ["a"]).room.tolist() == [2.0]
    replica.cluster_state.pods.hear(pod("new", 2, node="a"))
    replica.cluster_state.pods.hear(pod("old", 3, node="a", phase="Succeeded"))
    result = seen(replica, ["a"])
    assert (result.room - result.reserved).tolist() == [2.0]
    replica.clock.pass_seconds(300)
    assert np.isnan(seen(replica, ["a"]).room).all()


@pytest.mark.parametrize(
    ("ended_us", "release", "room"),
    [(START + SECOND, "report", 3.0), (START - SECOND, "report", 2.0), (START + SECOND, "running", 2.0)],
    ids=["after its last report", "before it", "it was never reported"],
)
def test_what_a_silent_node_has_reported_leaves_room_when_it_ends_and_nothing_else_does(
    ended_us: int, release: str, room: float
) -> None:
    replica = Replica(given(extender_release=release), Clock())
    if release == "report":
        replica.cluster_state.pods.hear(pod("p", 1, node="a", phase="Running", ready_us=START - 60 * SECOND))
    replica.cluster_state.report(report("a", START, 2.0))
    if release == "running":
        replica.cluster_state.pods.hear(pod("p", 1, node="a", phase="Running", at_us=START))
    replica.clock.pass_seconds(60)
    replica.cluster_state.pods.hear(pod("p", 2, node="a", deleted=True, at_us=ended_us))
    assert seen(replica, ["a"]).room.tolist() == [room]


def test_small_pods_that_ended_on_a_silent_node_leave_little_room_for_a_large_one() -> None:
    replica = Replica(given(), Clock())
    rooms = {"small": (8.0, 8.0), "large": (2.0, 2.0)}
    reported_with_two_small_pods(replica, 4.0, rooms)
    replica.clock.pass_seconds(60)
    for number in range(2):
        replica.cluster_state.pods.hear(
            pod(f"p{number}", 2, node="a", deleted=True, at_us=START + SECOND, workload="small")
        )
    assert seen(replica, ["a"], workload="large").room.tolist() == [2.5]
    assert seen(replica, ["a"], workload="small").room.tolist() == [10.0]
    replica.cluster_state.report(report("a", START + 60 * SECOND, 4.0, classes=rooms))
    assert seen(replica, ["a"], workload="small").room.tolist() == [8.0]


async def test_nodes_that_are_silent_for_long_come_last_or_not_at_all() -> None:
    for unknown, passing in (("last", ["a", "b"]), ("reject", ["b"])):
        replica = Replica(given(extender_unknown=unknown), Clock())
        replica.cluster_state.report(report("a", START - 400 * SECOND, 90.0))
        replica.cluster_state.report(report("b", START, 1.0))
        answer = await replica.selector.filter(asked("p"), NAMES)
        assert list(answer.passing) == passing
        assert replica.decisions[0].node == "b"
        assert replica.decisions[0].guaranteed
        second = await replica.place("q", NAMES)
        assert second == ("a" if unknown == "last" else None)
        assert not replica.decisions[1].guaranteed


async def test_without_any_telemetry_all_nodes_pass_outside_the_guarantee_and_pods_spread() -> None:
    replica = Replica(given(), Clock())
    for name in NAMES:
        replica.cluster_state.describe(node(name))
    assert {await replica.place(f"p{number}", NAMES) for number in range(2)} == {"a", "b"}
    assert [decision.guaranteed for decision in replica.decisions] == [False, False]
    assert "no node has telemetry" in (replica.decisions[0].note or "")
    assert codec.decode(Decision, codec.encode(replica.decisions[0])) == replica.decisions[0]


def test_a_node_that_is_gone_is_unknown_and_its_row_is_given_away() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a"))
    replica.cluster_state.report(report("a", START, 5.0))
    replica.cluster_state.describe(node("a", 2, deleted=True))
    assert replica.cluster_state.nodes() == []
    replica.cluster_state.sweep(START)
    assert len(replica.cluster_state.rows) == 0
    replica.cluster_state.report(report("b", START, 1.0))
    assert seen(replica, ["b"]).room.tolist() == [1.0]
    assert np.isnan(seen(replica, ["a"]).room).all()


def test_the_end_of_an_earlier_node_of_the_same_name_takes_nothing_from_the_new_one() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a", 7, uid="second"))
    replica.cluster_state.report(report("a", START, 5.0))
    replica.cluster_state.describe(node("a", 6, uid="first", deleted=True))
    assert replica.cluster_state.nodes() == ["a"]
    assert seen(replica, ["a"]).room.tolist() == [5.0]


def test_kinds_of_pods_that_ended_are_forgotten_with_their_node() -> None:
    replica = Replica(given(), Clock())
    reported_with_two_small_pods(replica, 4.0, {"small": (8.0, 8.0)})
    replica.cluster_state.pods.hear(pod("p0", 2, node="a", deleted=True, at_us=START + SECOND, workload="small"))
    replica.cluster_state.pods.hear(pod("p1", 2, node="a", deleted=True, at_us=START + SECOND, workload="small"))
    assert [kind for kind, _ in replica.cluster_state.pods.gone.columns()] == ["small"]
    replica.cluster_state.sweep(START + 3600 * SECOND)
    assert len(replica.cluster_state.rows) == 0
    assert not list(replica.cluster_state.pods.gone.columns())


async def test_what_was_held_on_a_node_that_is_gone_is_not_of_the_node_that_has_its_row() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a"))
    replica.cluster_state.report(report("a", START, 5.0))
    assert await replica.place("p", ["a"]) == "a"
    replica.cluster_state.pods.hear(pod("p", 2, node="a", deleted=True))
    replica.cluster_state.reservations.settle("p")
    row = replica.cluster_state.rows.find("a")
    assert row is not None
    replica.cluster_state.describe(node("a", 2, deleted=True))
    replica.cluster_state.sweep(START)
    replica.cluster_state.report(report("b", START, 1.0))
    assert replica.cluster_state.rows.find("b") == row
    assert replica.cluster_state.reservations.sequence(row) == 0
    assert await replica.place("q", ["b"]) == "b"


def unguaranteed() -> float:
    return REGISTRY.get_sample_value("spazio_extender_unguaranteed_total") or 0.0


@pytest.mark.parametrize("mode", ["argmax", "graded"])
async def test_each_pod_that_goes_to_a_node_without_telemetry_counts(mode: str) -> None:
    replica = Replica(given(extender_mode=mode), Clock())
    for name in ("silent", "full"):
        replica.cluster_state.describe(node(name, created_us=START - 3600 * SECOND))
    replica.cluster_state.report(report("full", START, 0.0))
    before = unguaranteed()
    assert [await replica.place(f"p{number}", ["silent", "full"]) for number in range(3)] == ["silent"] * 3
    assert unguaranteed() == before + 3
    replica.cluster_state.report(report("full", START + SECOND, 5.0))
    assert await replica.place("q", ["silent", "full"]) == "full"
    assert unguaranteed() == before + 3


async def test_a_pod_without_a_place_counts_once_though_its_node_has_no_telemetry() -> None:
    bucket = Bucket()
    replica = Replica(given(extender_failure="open"), Clock(), bucket)
    replica.cluster_state.describe(node("silent"))
    bucket.away, before = True, unguaranteed()
    answer = await replica.selector.filter(asked("p"), ["silent"])
    assert list(answer.passing) == ["silent"]
    assert unguaranteed() == before + 1


async def test_a_note_says_whether_no_node_has_telemetry_or_none_of_those_that_were_asked_about() -> None:
    replica = Replica(given(), Clock())
    for name in ("linux", "windows"):
        replica.cluster_state.describe(node(name, created_us=START - 3600 * SECOND))
    await replica.place("p", ["windows"])
    replica.cluster_state.report(report("linux", START, 5.0))
    await replica.place("q", ["windows"])
    assert [decision.note for decision in replica.decisions] == [ALL_UNHEARD, NONE_HEARD]
    assert not any(decision.guaranteed for decision in replica.decisions)
