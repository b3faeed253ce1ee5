"""Which room counts, what becomes of nodes that are silent, who chooses the strategies, and what decisions say."""

import numpy as np
import pytest

from schemas import codec
from schemas.messages.placement import Decision
from schemas.messages.prediction import Resources
from sinks.extender.candidate import Candidates
from sinks.extender.pod import parse
from tests.support.placement import GIB, SECOND, START, Clock, Replica, asked, given, node, pod, report
from tests.support.predicted import prediction

NAMES = ["a", "b"]


def seen(replica: Replica, names: list[str], **about: str) -> Candidates:
    rows = replica.cluster_state.rows.rows(names)
    return replica.cluster_state.candidates(parse(asked("p", **about)), names, rows, replica.clock.now_us)


def test_the_lower_bound_is_what_is_sure_and_the_mean_what_is_expected() -> None:
    for prior, variant, sure in ((0.6, "default", 3.0), (0.1, "default", 3.0), (0.1, "carico", 5.0)):
        replica = Replica(given(model_variant=variant), Clock())
        replica.cluster_state.report(report("a", START, 5.0, lower=3.0, prior=prior))
        result = seen(replica, ["a"])
        assert (result.room.tolist(), result.sure.tolist()) == ([5.0], [sure])
        assert result.unseen.tolist() == [prior > 0.5]


def test_a_class_that_nobody_has_seen_is_judged_by_its_requests_with_a_wide_tail() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 50.0, free={"cpu": 8.0, "memory": 8 * GIB}))
    rows = replica.cluster_state.rows.rows(["a"])

    def judged(**requests: str) -> tuple[float, float, bool]:
        question = asked("p", workload="new")
        question["spec"]["containers"][0]["resources"] = {"requests": requests} if requests else {}
        result = replica.cluster_state.candidates(parse(question), ["a"], rows, replica.clock.now_us)
        return float(result.room[0]), float(result.sure[0]), bool(result.unseen[0])

    assert judged(cpu="2", memory="1Gi") == (4.0, 2.0, True)
    assert judged(cpu="64", memory="1Gi") == (0.125, 0.0, True)
    room, sure, unseen = judged()
    assert room == pytest.approx(8 * 1024 / 200)
    assert sure < room / 3
    assert unseen


def test_the_first_pod_of_a_kind_may_run_where_it_is_expected_to_fit() -> None:
    """Else a kind with a wide bound would never run, and nothing would ever be learned of it."""
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 2.0, lower=0.0, free={"cpu": 1.9, "memory": 4 * GIB}))
    rows = replica.cluster_state.rows.rows(["a"])
    question = asked("p", workload="new")
    question["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    result = replica.cluster_state.candidates(parse(question), ["a"], rows, replica.clock.now_us)
    assert (result.room[0] < 1.64, result.sure.tolist(), result.unseen.tolist()) == (True, [1.0], [True])
    # A known kind: only where the node is idle and has none of it, and only if the mean says that one fits.
    for cpu, pods, room, sure in ((0.1, 0, 1.2, 1.0), (0.1, 1, 1.2, 0.0), (0.5, 0, 1.2, 0.0), (0.1, 0, 0.9, 0.0)):
        replica.clock.pass_seconds(1)
        now_us, big, usage = replica.clock.now_us, {"big": (room, 0.0)}, {"cpu": cpu, "memory": 0.25}
        replica.cluster_state.report(report("a", now_us, 2.0, classes=big, usage=usage, running=pods))
        assert seen(replica, ["a"], workload="big").sure.tolist() == [sure]


def test_the_room_for_the_pod_s_own_class_counts_where_the_node_knows_it() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 5.0, classes={"big": (1.5, 1.0)}))
    replica.cluster_state.report(report("b", START, 7.0))
    assert seen(replica, NAMES, workload="big").room.tolist() == [1.5, 7.0]
    assert seen(replica, NAMES, workload="big").sure.tolist() == [1.0, 7.0]
    assert seen(replica, NAMES, workload="else").room.tolist() == [5.0, 7.0]
    replica.cluster_state.report(report("a", START + SECOND, 5.0, classes={"big": (2.5, 2.0)}))
    assert seen(replica, NAMES, workload="big").room.tolist() == [2.5, 7.0]
    replica.cluster_state.report(report("a", START, 50.0))
    assert seen(replica, NAMES, workload="big").room.tolist() == [2.5, 7.0], "an older report is no news"


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


def reported_with_two_small_pods(replica: Replica, room: float, rooms: dict[str, tuple[float, float]]) -> None:
    replica.cluster_state.report(report("a", START - SECOND, room, classes=rooms))
    for number in range(2):
        replica.cluster_state.pods.hear(
            pod(f"p{number}", 1, node="a", phase="Running", ready_us=START - 60 * SECOND, workload="small")
        )
    replica.cluster_state.report(report("a", START, room, classes=rooms))


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


async def test_settings_profiles_and_annotations_choose_strategies_in_that_order() -> None:
    replica = Replica(given(extender_profiles="batch:most_allocated"), Clock())
    for name in NAMES:
        replica.cluster_state.report(report(name, START, 5.0))
        replica.cluster_state.describe(node(name))
    raw = asked("p")
    await replica.selector.filter(raw, NAMES)
    raw["spec"]["schedulerName"] = "batch"
    await replica.selector.filter(raw, NAMES)
    raw["metadata"]["annotations"] = {"spazio.strategy": "peak=3+availability"}
    await replica.selector.filter(raw, NAMES)
    raw["metadata"]["annotations"] = {"spazio.strategy": "nonsense"}
    await replica.selector.filter(raw, NAMES)
    assert [decision.strategies for decision in replica.decisions] == [
        {"availability": 1}, {"most_allocated": 1}, {"peak": 3, "availability": 1}, {"most_allocated": 1},
    ]  # fmt: skip
    assert "'nonsense' is not name or name=weight" in (replica.decisions[-1].note or "")


async def test_graded_scores_follow_room_and_hold_nothing() -> None:
    replica = Replica(given(extender_mode="graded"), Clock())
    for name, room in (("a", 1.0), ("b", 90.0), ("c", 0.5)):
        replica.cluster_state.report(report(name, START, room))
    answer = await replica.selector.filter(asked("p"), ["a", "b", "c"])
    assert list(answer.passing) == ["a", "b"]
    assert dict(answer.unresolvable) == {"c": "spazio: no room for another pod of its kind"}
    scores = await replica.selector.prioritize(asked("p"), ["a", "b"])
    assert scores == {"a": 1, "b": 9}
    assert len(replica.cluster_state.reservations) == 0
    assert (replica.decisions[0].node, replica.decisions[0].guaranteed) == (None, False)


async def test_preempting_keeps_the_nodes_that_would_have_room_without_the_victims() -> None:
    replica = Replica(given(), Clock())
    for name, room in (("a", 0.5), ("b", -0.0)):
        replica.cluster_state.pods.hear(
            pod(f"victim-{name}", 1, node=name, phase="Running", ready_us=START - 60 * SECOND)
        )
        replica.cluster_state.report(report(name, START, room))
    assert await replica.selector.preempt(asked("p"), {"a": ["victim-a"], "b": []}) == {"a": ["victim-a"]}


def test_a_pod_that_ended_leaves_room_for_one_of_its_class_however_little_is_left_by_the_mean() -> None:
    replica = Replica(given(), Clock())
    started = START - 60 * SECOND
    replica.cluster_state.pods.hear(pod("p", 1, node="a", phase="Running", ready_us=started, workload="web"))
    for workload in ("web", "other"):  # the node tells of the class later than of the pod
        replica.cluster_state.report(report("a", START, 0.25, classes={"web": (1.0, 1.0), "other": (0.5, 0.5)}))
        replica.clock.pass_seconds(60)
        replica.cluster_state.pods.hear(pod("p", 2, node="a", phase="Succeeded", workload="web", at_us=START + SECOND))
        assert seen(replica, ["a"], workload=workload).room.tolist() == [{"web": 2.0, "other": 1.0}[workload]]
        replica = Replica(given(), Clock())
        replica.cluster_state.pods.hear(pod("p", 1, node="a", phase="Running", ready_us=started, workload="web"))


async def test_preempting_counts_what_the_victims_requested() -> None:
    replica = Replica(given(extender_strategies="least_allocated"), Clock())
    for name in NAMES:
        replica.cluster_state.describe(node(name))
        replica.cluster_state.report(report(name, START, 9.0))
        for number in range(2):
            requests = {"cpu": 1.5, "memory": GIB}
            replica.cluster_state.pods.hear(pod(f"{name}{number}", 1, node=name, phase="Running", requests=requests))
    victims = {"a": ["a0", "a1"], "b": ["b0", "nobody"]}
    assert await replica.selector.preempt(asked("p", cpu="1"), victims) == victims
    assert await replica.selector.preempt(asked("p", cpu="3"), victims) == {"a": ["a0", "a1"]}
    assert await replica.selector.preempt(asked("p", cpu="5"), victims) == {}


async def test_evicting_a_small_pod_makes_little_room_for_a_large_one() -> None:
    replica = Replica(given(), Clock())
    rooms = {"small": (2.0, 2.0), "large": (0.5, 0.5)}
    reported_with_two_small_pods(replica, 1.0, rooms)
    assert await replica.selector.preempt(asked("p", workload="large"), {"a": ["p0"]}) == {}
    assert await replica.selector.preempt(asked("p", workload="large"), {"a": ["p0", "p1"]}) == {"a": ["p0", "p1"]}


def test_resources_that_nobody_asks_for_any_more_are_forgotten() -> None:
    replica = Replica(given(), Clock())
    for number in range(3):
        requests = {"cpu": 1.0, f"example.com/r{number}": 1.0}
        replica.cluster_state.pods.hear(pod(f"p{number}", 1, node="a", requests=requests))
    assert "requested:example.com/r1" in replica.cluster_state.rows
    for number in range(3):
        replica.cluster_state.pods.hear(pod(f"p{number}", 2, node="a", deleted=True))
    assert "requested:example.com/r1" not in replica.cluster_state.rows
    assert "requested:cpu" not in replica.cluster_state.rows
    assert seen(replica, ["a"]).requested["cpu"].tolist() == [0.0]


async def test_a_node_that_another_extender_turned_down_is_left_for_the_next_best() -> None:
    replica = Replica(given(), Clock())
    for name, room in (("a", 9.0), ("b", 5.0), ("c", 3.0)):
        replica.cluster_state.report(report(name, START, room))
    await replica.selector.filter(asked("p"), ["a", "b", "c"])
    assert await replica.selector.prioritize(asked("p"), ["b", "c"]) == {"b": 10}
    assert [
        (uid, replica.cluster_state.rows.names[row]) for uid, row, _ in replica.cluster_state.reservations.all()
    ] == [("p", "b")]


async def test_a_decision_says_what_the_closest_nodes_lack() -> None:
    replica = Replica(given(), Clock())
    for name, room in (("a", 0.75), ("b", 0.25), ("c", 4.0)):
        replica.cluster_state.report(report(name, START, room))
    await replica.selector.filter(asked("p"), ["a", "b", "c"])
    messages = codec.decode(Decision, codec.encode(replica.decisions[0]))
    assert (messages.nodes, messages.feasible, messages.node) == (3, 1, "c")
    assert [ranked.node for ranked in messages.ranked] == ["c"]
    assert [refusal.node for refusal in messages.refusals] == ["a", "b"]
    assert "room for 0.75 pods" in messages.refusals[0].needs[0]


def test_what_came_after_a_prediction_is_added_to_its_peak() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a"))
    started = START - 60 * SECOND
    replica.cluster_state.pods.hear(
        pod("before", 1, node="a", phase="Running", ready_us=started, requests={"cpu": 1.0})
    )
    replica.cluster_state.report(report("a", START, 9.0))
    replica.cluster_state.predict(
        prediction(node="a", at_us=START, peak=Resources(cpu=2.0, memory=1.0 * GIB), assumed=None)
    )
    replica.cluster_state.pods.hear(pod("after", 2, node="a", requests={"cpu": 0.5}))
    result = seen(replica, ["a"])
    assert (result.peak["cpu"].tolist(), result.unpredicted["cpu"].tolist()) == ([2.0], [0.5])
    assert result.requested["cpu"].tolist() == [1.5]
    assert result.allocatable["nvidia.com/gpu"].tolist() == [0.0]


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


async def test_nodes_go_on_reporting_however_many_classes_were_asked_about() -> None:
    replica = Replica(given(), Clock())
    for step in range(3):
        replica.cluster_state.report(
            report("a", START + step, 9.0, classes={f"c{number}": (5.0, 5.0) for number in range(40)})
        )
        for number in range(40):
            assert seen(replica, ["a"], workload=f"c{number}").room.tolist() == [5.0]
    replica.cluster_state.report(report("a", START + 9, 9.0, classes={"c1": (3.0, 3.0)}))
    assert seen(replica, ["a"], workload="c1").room.tolist() == [3.0]
    assert seen(replica, ["a"], workload="c2").room.tolist() == [9.0]


async def test_a_pod_of_a_class_of_which_none_fits_takes_all_the_room_there_is() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 5.0, classes={"big": (0.0, 0.0), "small": (5.0, 5.0)}))
    replica.cluster_state.pods.hear(pod("p", 1, node="a", workload="big"))
    assert await replica.place("q", ["a"], workload="small") is None


def test_however_many_classes_there_are_each_has_its_own_room() -> None:
    replica = Replica(given(), Clock())
    for number in range(200):
        replica.cluster_state.report(report(f"n{number}", START, 50.0, classes={f"job-{number}": (1.0, 1.0)}))
        replica.cluster_state.pods.hear(pod(f"p{number}", 1, node=f"n{number}", workload=f"job-{number}"))
    replica.cluster_state.report(report("a", START, 50.0, classes={"late": (0.25, 0.25)}))
    assert seen(replica, ["a"], workload="late").room.tolist() == [0.25]


async def test_evicting_helps_only_where_room_is_all_that_lacks() -> None:
    replica = Replica(given(extender_strategies="weighted+availability"), Clock())
    replica.cluster_state.describe(node("a", labels={"spazio.disk-type": "hdd"}))
    replica.cluster_state.pods.hear(pod("victim", 1, node="a", phase="Running", ready_us=START - 60 * SECOND))
    replica.cluster_state.report(report("a", START, 0.5))
    raw = asked("p", annotations={"spazio.disk-type": "ssd"})
    assert await replica.selector.preempt(raw, {"a": ["victim"]}) == {}


async def test_a_peak_that_nothing_supports_refuses_no_pod() -> None:
    """On a fresh install the calibrated model states the whole machine until it has learned enough."""
    replica = Replica(given(extender_strategies="peak"), Clock())
    replica.cluster_state.describe(node("a"))
    replica.cluster_state.report(report("a", START, 9.0))
    whole = Resources(cpu=8.0, memory=16.0 * GIB)
    fresh = prediction(node="a", at_us=START, peak=whole, violation=1.0, assumed=["cpu", "memory"])
    replica.cluster_state.predict(fresh)
    assert await replica.place("p", ["a"]) == "a"
    replica.cluster_state.predict(fresh.model_copy(update={"at_us": START + SECOND, "assumed": ["memory"]}))
    assert await replica.place("p", ["a"]) is None
    replica.cluster_state.predict(fresh.model_copy(update={"at_us": START + 2 * SECOND, "assumed": None}))
    assert await replica.place("q", ["a"]) is None


async def test_a_prediction_does_not_know_of_pods_that_telemetry_does_not_show() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a"))
    replica.cluster_state.report(report("a", START, 9.0))
    replica.cluster_state.pods.hear(
        pod("shown", 1, node="a", phase="Running", ready_us=START - 60 * SECOND, requests={"cpu": 1.0})
    )
    replica.cluster_state.report(report("a", START + SECOND, 9.0))
    replica.cluster_state.pods.hear(pod("bound", 1, node="a", requests={"cpu": 0.25}))
    await replica.place("held", ["a"], cpu="500m")
    replica.cluster_state.predict(
        prediction(node="a", at_us=START, peak=Resources(cpu=2.0, memory=1.0 * GIB), assumed=None)
    )
    assert seen(replica, ["a"]).unpredicted["cpu"].tolist() == [0.75]
    replica.cluster_state.predict(prediction(node="a", at_us=START - SECOND, peak=Resources(cpu=9.0, memory=1.0 * GIB)))
    assert seen(replica, ["a"]).peak["cpu"].tolist() == [2.0], "an older prediction is no news"
    replica.clock.pass_seconds(901)
    assert np.isnan(seen(replica, ["a"]).peak["cpu"]).all(), "nobody predicts any more"


@pytest.mark.parametrize("count", [1, 64, 65, 1000])
def test_rows_grow_with_what_is_in_them(count: int) -> None:
    replica = Replica(given(), Clock())
    for number in range(count):
        replica.cluster_state.report(report(f"n{number}", START, float(number)))
    names = [f"n{number}" for number in reversed(range(count))]
    assert seen(replica, names).room.tolist() == [float(number) for number in reversed(range(count))]
