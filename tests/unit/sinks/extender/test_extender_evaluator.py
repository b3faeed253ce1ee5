"""Which room counts, what becomes of nodes that are silent, who chooses the strategies, and what decisions say."""

import numpy as np
import pytest

from schemas import codec
from schemas.messages.estimate import MOSTLY_ASSUMED
from schemas.messages.placement import Decision
from schemas.messages.prediction import Resources
from sinks.extender.pod import parse
from tests.support.extender.placement import GIB, SECOND, START, Clock, Replica, asked, given, node, pod, report
from tests.support.processors.predicted import prediction
from tests.unit.sinks.extender.nodes import NAMES, seen


def test_the_lower_bound_is_what_is_sure_and_the_mean_what_is_expected() -> None:
    for prior, variant, sure in ((0.8, "default", 3.0), (0.1, "default", 3.0), (0.1, "carico", 5.0)):
        replica = Replica(given(model_variant=variant), Clock())
        replica.cluster_state.report(report("a", START, 5.0, lower=3.0, prior=prior))
        result = seen(replica, ["a"])
        assert (result.room.tolist(), result.sure.tolist()) == ([5.0], [sure])
        assert result.unseen.tolist() == [prior > MOSTLY_ASSUMED]


def test_a_class_that_nobody_has_seen_is_judged_by_its_requests_with_a_wide_tail() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 50.0, free={"cpu": 8.0, "memory": 8 * GIB}))
    rows = replica.cluster_state.rows.rows(["a"])

    def judged(**requests: str) -> tuple[float, float, bool]:
        question = asked("p", workload="new")
        question["spec"]["containers"][0]["resources"] = {"requests": requests} if requests else {}
        result = replica.cluster_state.candidates(parse(question), ["a"], rows, replica.clock.now_us)
        return float(result.room[0]), float(result.sure[0]), bool(result.unseen[0])

    assert judged(cpu="2", memory="1Gi") == (4.0, 4.0 / 1.64, True)
    assert judged(cpu="64", memory="1Gi") == (0.125, 0.125 / 1.64, True)
    room, sure, unseen = judged()
    assert room == pytest.approx(8 * 1024 / 200)
    assert sure < room / 3
    assert unseen


@pytest.mark.parametrize(("running", "places"), [(44, 66.0), (110, 0.0), (111, 0.0)])
def test_a_class_that_nobody_has_seen_gets_no_more_than_the_places_that_the_pod_limit_leaves(
    running: int, places: float
) -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a"))
    replica.cluster_state.report(report("a", START, 50.0, free={"cpu": 40.0, "memory": 80 * GIB}, pods=running))
    rows = replica.cluster_state.rows.rows(["a"])
    for requests in ({}, {"cpu": "10m", "memory": "10Mi"}, {"cpu": "0", "memory": "0"}):
        question = asked("p", workload="new")
        question["spec"]["containers"][0]["resources"] = {"requests": requests}
        result = replica.cluster_state.candidates(parse(question), ["a"], rows, replica.clock.now_us)
        assert (result.room.tolist(), result.sure.tolist()) == ([places], [places])


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
