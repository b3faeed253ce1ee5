"""The judge of placements: it finds what it is to find, and nothing else. Times are seconds here."""

from tests.e2e.kubernetes import verdict
from tests.e2e.kubernetes.verdict import NEVER, Pod, Record, Report


def us(seconds: float) -> int:
    return NEVER if seconds < 0 else round(seconds * 1e6)


def report(came: float, room: float, *, sure: float | None = None) -> Report:
    return Report(us(came), us(came - 0.1), room, room if sure is None else sure)


def record(reports: list[Report], *pods: Pod) -> Record:
    made = Record({pod.uid: pod for pod in pods})
    made.reports["n"] = reports
    made.bound["n"] = [pod for pod in pods if pod.bound_us < NEVER]
    return made


def pod(uid: str, bound: float, *, running: float = -1, ended: float = -1, created: float = 0) -> Pod:
    decided = us(bound - 0.1) if bound > 0 else NEVER
    return Pod(uid, us(created), us(created), decided, "n", us(bound), "n", us(running), us(ended))


def found(made: Record) -> list[tuple[str, float]]:
    return [(each.uid, each.room) for each in verdict.excesses(made)]


def test_pods_that_one_report_has_room_for_are_well_placed_and_the_next_one_is_not() -> None:
    reports = [report(1, 2.9)]
    assert found(record(reports, pod("a", 2), pod("b", 3))) == []
    made = record(reports, pod("a", 2), pod("b", 3), pod("c", 4))
    assert found(made) == [("c", 2.9 - 2)]
    told = verdict.story(made, next(verdict.excesses(made)))
    assert told.startswith("n: decided 3.90, bound 4.00; room 2.90 of 0.90 came 1.00; pods ")


def test_a_pod_counts_beside_a_report_until_the_report_is_a_second_behind_its_start() -> None:
    pods = pod("a", 2, running=4), pod("b", 6)
    assert found(record([report(1, 1.5), report(4.9, 1.2)], *pods)) == [("b", 1.2 - 1)]
    assert found(record([report(1, 1.5), report(5.2, 1.2)], *pods)) == []


def test_a_pod_that_has_ended_takes_no_room() -> None:
    assert found(record([report(1, 1.5)], pod("a", 2, running=3, ended=5), pod("b", 6))) == []


def test_what_a_silent_node_showed_and_has_ended_since_leaves_room() -> None:
    shown = pod("a", 2, running=3, ended=20)
    assert found(record([report(1, 1.5), report(5, 0.5)], shown, pod("b", 40))) == []
    assert found(record([report(1, 1.5), report(15, 0.5)], shown, pod("b", 24))) == [("b", 0.5)]


def test_a_node_that_never_reported_has_no_room() -> None:
    assert found(record([], pod("a", 2))) == [("a", 0.0)]


def test_what_counts_is_the_best_report_in_force_from_shortly_before_the_decision_to_the_bind() -> None:
    assert found(record([report(1, 0.5), report(1.95, 1.1)], pod("a", 2))) == []
    assert found(record([report(1, 1.1), report(1.2, 0.5)], pod("a", 2))) == [("a", 0.5)]


def test_room_is_open_while_surely_nothing_is_on_its_way_to_it() -> None:
    made = record([report(1, 3.5, sure=2.9)], pod("a", 5))
    assert [verdict.open_room(made, us(at)) for at in (0.5, 2, 4.95, 6)] == [0, 2, 1, 1]


def test_who_waits_by_open_room_is_told_how_long_on_end() -> None:
    made = record([report(1, 1.5), report(4, 0.0), report(6, 1.5)], pod("a", -1))
    assert verdict.idle_waits(made, us(8)) == {"a": 3.0}
    assert verdict.idle_waits(record([report(1, 0.5)], pod("a", -1)), us(8)) == {}


def test_the_most_pods_that_a_node_had_at_once_leave_out_those_that_ended_before() -> None:
    assert verdict.most_at_once(record([], pod("a", 1, ended=3), pod("b", 2), pod("c", 4))) == 2
