"""A report that counts a class's pods ends as many reservations, and shows which ends it has not seen."""

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from sinks.extender import pod as pods
from tests.support.placement import SECOND, START, Clock, Replica, asked, given, pod, report

CLASS = "default/web"


def replica_with(bound: int, *, running: int, at_us: int = START + 40 * SECOND) -> Replica:
    """Return an extender that has heard of so many pods of a node, some of which run since then."""
    made = Replica(given(), Clock())
    for number in range(bound):
        # The class is known before, so that its pods are counted as of that class.
        if not number:
            made.cluster_state.report(report("a", START, 9.0, classes={CLASS: (9.0, 9.0)}, running=0))
        made.cluster_state.pods.hear(pod(f"p{number}", 2, node="a"))
        if number < running:
            started = at_us + number * 1000
            made.cluster_state.pods.hear(pod(f"p{number}", 3, node="a", phase="Running", at_us=started))
    return made


def reserved(made: Replica) -> int:
    return sum(bound.reserves for bound in made.cluster_state.pods.bound.values())


def tell(made: Replica, seconds: float, running: int, *, prior: float = 0.1) -> None:
    at_us = START + round(seconds * SECOND)
    made.cluster_state.report(report("a", at_us, 9.0, classes={CLASS: (9.0, 9.0)}, running=running, prior=prior))


def test_as_many_pods_are_covered_as_the_report_counts() -> None:
    made = replica_with(3, running=3)
    for counted, left in ((0, 3), (1, 2), (1, 2), (3, 0)):
        tell(made, 40.5, counted)
        assert reserved(made) == left


def test_a_pod_that_a_report_counts_is_still_missing_in_smoothed_usage() -> None:
    made = replica_with(1, running=1)
    recent = made.cluster_state.rows["recent"]
    before = float(recent.sum())
    assert before > 0
    tell(made, 40.5, 1)
    assert (reserved(made), float(recent.sum())) == (0, before)
    tell(made, 42.5, 1)
    assert float(recent.sum()) == pytest.approx(0)


def test_a_pod_that_does_not_run_yet_stays_reserved_whatever_the_report_counts() -> None:
    made = replica_with(3, running=1)
    tell(made, 40.5, 3)
    assert reserved(made) == 2


def test_a_pod_that_started_after_the_report_stays_reserved() -> None:
    made = replica_with(1, running=1, at_us=START + 41 * SECOND)
    tell(made, 40.5, 1)
    assert reserved(made) == 1


def test_where_the_node_has_not_measured_its_pods_the_start_has_to_settle() -> None:
    made = replica_with(1, running=1)
    tell(made, 40.5, 1, prior=0.9)
    assert reserved(made) == 1
    tell(made, 42.5, 1, prior=0.9)
    assert reserved(made) == 0


def test_pods_that_have_ended_leave_the_count_to_those_that_follow() -> None:
    made = replica_with(2, running=1)
    tell(made, 40.5, 1)
    made.cluster_state.pods.hear(pod("p0", 4, node="a", phase="Succeeded", at_us=START + 41 * SECOND))
    made.cluster_state.pods.hear(pod("p1", 3, node="a", phase="Running", at_us=START + 41 * SECOND))
    tell(made, 41.5, 0)
    assert reserved(made) == 1
    tell(made, 42.0, 1)
    assert reserved(made) == 0


@pytest.mark.parametrize("ends", [False, True])
@drawn(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=30))
def test_what_is_neither_reserved_nor_counted_never_runs(ends: bool, steps: list[tuple[int, int]]) -> None:
    """Reports come every tenth of a second, so no start has settled: whatever is covered was counted."""
    made = replica_with(5, running=5)
    alive, highest = 5, 0
    for number, (counted, which) in enumerate(steps):
        highest = max(highest, counted)
        tell(made, 40.1 + number * 0.001, counted)
        if ends and which < 5 and f"p{which}" in made.cluster_state.pods.bound:
            ended = pod(f"p{which}", 9, node="a", phase="Succeeded", at_us=START + 41 * SECOND)
            made.cluster_state.pods.hear(ended)
            alive -= 1
        covered = sum(not bound.reserves for bound in made.cluster_state.pods.bound.values())
        assert covered <= highest
        assert covered + reserved(made) == alive


def room(made: Replica) -> float:
    wanted, rows = pods.parse(asked("q", workload=CLASS)), made.cluster_state.rows.rows(["a"])
    return float(made.cluster_state.candidates(wanted, ["a"], rows, made.clock.now_us).room[0])


def end(made: Replica, uid: str, seconds: float) -> None:
    ended = pod(uid, 9, node="a", phase="Succeeded", at_us=START + round(seconds * SECOND))
    made.cluster_state.pods.hear(ended)


def ended_after_report() -> Replica:
    """Return an extender whose report counts three pods, all of which the API has."""
    made = replica_with(3, running=3)
    tell(made, 42.5, 3)
    made.clock.now_us = START + 43 * SECOND
    return made


def test_a_pod_that_ended_leaves_its_room_at_once_and_once_only() -> None:
    made = ended_after_report()
    assert room(made) == 9.0
    end(made, "p0", 42.8)
    assert room(made) == 10.0
    tell(made, 43.5, 3)  # this report's usage is still that of before
    assert room(made) == 10.0
    tell(made, 44.5, 2)
    assert room(made) == 9.0


def test_an_end_that_the_report_has_seen_before_the_api_told_it_leaves_nothing() -> None:
    made = ended_after_report()
    tell(made, 43.5, 2)
    end(made, "p0", 43.8)
    assert room(made) == 9.0


def test_a_pod_that_the_watch_has_not_reported_keeps_an_end_from_leaving_room_for_long() -> None:
    made = ended_after_report()
    end(made, "p0", 42.8)
    for seconds, expected in ((43.5, 10.0), (45.5, 10.0), (46.5, 9.0), (60.5, 9.0)):
        made.clock.now_us = START + round(seconds * SECOND)
        tell(made, seconds, 3)
        assert room(made) == expected


def test_room_that_an_end_left_is_given_once() -> None:
    made = replica_with(2, running=2)
    for number, uid in enumerate(("p0", "p1")):
        made.cluster_state.report(
            report("a", START + 42 * SECOND + number, 1.0, classes={CLASS: (1.0, 1.0)}, running=2)
        )
        end(made, uid, 42.8)
        assert room(made) == 2.0 + number
    made.cluster_state.leave("a")
    made.cluster_state.sweep(START + 10_000 * SECOND)
    assert made.cluster_state.rows.find("a") is None
    assert not list(made.cluster_state.pods.counted.freed.columns())
