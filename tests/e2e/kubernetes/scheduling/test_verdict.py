"""The judge of placements: it finds what it is to find, and nothing else. Times are seconds here."""

import math

from tests.e2e.kubernetes.scheduling import verdict
from tests.e2e.kubernetes.scheduling.verdict import NEVER, Pod, Record, Report


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


def excesses_of(made: Record) -> list[tuple[str, float]]:
    return [(each.uid, each.room) for each in verdict.excesses(made)]


def test_pods_that_one_report_has_room_for_are_well_placed_and_the_next_one_is_not() -> None:
    reports = [report(1, 2.9)]
    assert excesses_of(record(reports, pod("a", 2), pod("b", 3))) == []
    made = record(reports, pod("a", 2), pod("b", 3), pod("c", 4))
    assert excesses_of(made) == [("c", 2.9 - 2)]
    text = verdict.story(made, next(verdict.excesses(made)))
    assert text.startswith("n: decided 3.90, bound 4.00; room 2.90 of 0.90 came 1.00; pods class/")


def test_a_pod_counts_beside_a_report_until_the_report_is_a_second_behind_its_start() -> None:
    pods = pod("a", 2, running=4), pod("b", 6)
    assert excesses_of(record([report(1, 1.5), report(4.9, 1.2)], *pods)) == [("b", 1.2 - 1)]
    assert excesses_of(record([report(1, 1.5), report(5.2, 1.2)], *pods)) == []


def test_a_pod_that_has_ended_takes_no_room() -> None:
    assert excesses_of(record([report(1, 1.5)], pod("a", 2, running=3, ended=5), pod("b", 6))) == []


def test_what_a_silent_node_showed_and_has_ended_since_leaves_room() -> None:
    shown = pod("a", 2, running=3, ended=20)
    assert excesses_of(record([report(1, 1.5), report(5, 0.5)], shown, pod("b", 40))) == []
    assert excesses_of(record([report(1, 1.5), report(15, 0.5)], shown, pod("b", 24))) == [("b", 0.5)]


def test_a_node_that_never_reported_has_no_room() -> None:
    assert excesses_of(record([], pod("a", 2))) == [("a", 0.0)]


def test_what_counts_is_the_best_report_in_force_from_shortly_before_the_decision_to_the_bind() -> None:
    assert excesses_of(record([report(1, 0.5), report(1.95, 1.1)], pod("a", 2))) == []
    assert excesses_of(record([report(1, 1.1), report(1.2, 0.5)], pod("a", 2))) == [("a", 0.5)]


def test_room_is_open_while_surely_nothing_is_on_its_way_to_it() -> None:
    made = record([report(1, 3.5, sure=2.9)], pod("a", 5))
    assert [verdict.open_room(made, us(at)) for at in (0.5, 2, 4.95, 6)] == [0, 2, 1, 1]


def test_how_long_on_end_pods_wait_by_open_room_is_reported() -> None:
    made = record([report(1, 1.5), report(4, 0.0), report(6, 1.5)], pod("a", -1))
    assert verdict.waits(made, us(8)) == {"a": 3.0}
    assert verdict.waits(record([report(1, 0.5)], pod("a", -1)), us(8)) == {}


def test_seconds_in_which_the_scheduler_binds_others_do_not_count() -> None:
    others = [pod(f"p{number}", 2 + number / 100) for number in range(30)]
    made = record([report(1, 40.5)], pod("a", -1), *others)
    assert verdict.waits(made, us(6))["a"] == 4.0
    assert verdict.waits(made, us(6), math.inf)["a"] == 5.0
    assert verdict.waits(made, us(6), 31)["a"] == 5.0


def test_the_most_pods_that_a_node_had_at_once_leave_out_those_that_ended_before() -> None:
    assert verdict.most_at_once(record([], pod("a", 1, ended=3), pod("b", 2), pod("c", 4))) == 2


# Of four CPUs and their memory: small services, batch, and pods that hold memory.
TAKES = {"small": (0.03, 0.01), "batch": (0.25, 0.0), "holding": (0.0, 0.3)}


def mixed(reports: list[Report], *pods: Pod) -> Record:
    made = record(reports, *pods)
    made.takes = TAKES
    return made


def of(workload: str, made: Pod) -> Pod:
    made.workload = workload
    return made


def test_pods_that_really_take_more_than_the_policy_lets_them_are_named_whatever_was_reported() -> None:
    batch = [of("batch", pod(f"b{number}", number)) for number in range(1, 5)]
    small, gone = of("small", pod("s", 5)), of("small", pod("s", 5, ended=8))
    assert list(verdict.beyond(mixed([], *batch))) == []
    [result] = verdict.beyond(mixed([], *batch, small))
    assert (result.uid, result.node, round(result.room, 2)) == ("s", "n", -0.03)
    holding = [of("holding", pod(f"h{number}", 6 + number)) for number in range(4)]
    assert [each.uid for each in verdict.beyond(mixed([], *batch[:3], gone, *holding))] == ["h3"]


def test_room_is_that_of_the_class_that_asks_and_pods_of_others_take_as_much_of_it_as_they_displace() -> None:
    messages = report(1, 3.0)._replace(classes={"batch": (2.5, 2.2), "small": (20.0, 18.5)})
    made = mixed([messages], of("small", pod("s", 5)), of("batch", pod("b", 7)))
    assert [verdict.open_room(made, us(4), each) for each in ("batch", "small", "holding")] == [2, 18, 3]
    assert [verdict.open_room(made, us(6), each) for each in ("batch", "small")] == [2, 17]
    assert [verdict.open_room(made, us(8), each) for each in ("batch", "small")] == [1, 9]


def test_who_waits_is_judged_by_the_room_of_its_own_class() -> None:
    messages = report(1, 3.0)._replace(classes={"batch": (0.5, 0.2), "small": (20.0, 18.5)})
    made = mixed([messages], of("small", pod("s", -1)), of("batch", pod("b", -1)))
    assert verdict.waits(made, us(5)).keys() == {"s"}
