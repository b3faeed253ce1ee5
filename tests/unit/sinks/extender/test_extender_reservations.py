"""Reservations: a place is held from the decision until a report shows the pod, and never longer than it should be."""

from typing import Any

import pytest

from schemas.messages.placement import Held, Reservations
from tests.support.extender.placement import SECOND, START, Bucket, Clock, Replica, asked, given, node, pod, report

NODES = ["a", "b"]


def replica_with(rooms: dict[str, float], **flat: str) -> Replica:
    made = Replica(given(**flat), Clock())
    for name, room in rooms.items():
        made.cluster_state.report(report(name, START, room))
    return made


async def test_a_place_that_is_held_is_not_given_again() -> None:
    replica = replica_with({"a": 1.5, "b": 1.0})
    assert [await replica.place(f"p{number}", NODES) for number in range(3)] == ["a", "b", None]
    assert [decision.outcome for decision in replica.decisions] == ["placed", "placed", "rejected"]
    assert replica.decisions[-1].refused == {"no room for another pod of its kind": 2}


async def test_asking_again_gives_the_earlier_place_back() -> None:
    replica = replica_with({"a": 1.0, "b": 0.0})
    assert await replica.place("p", NODES) == "a"
    assert await replica.place("p", NODES) == "a"
    assert await replica.place("q", NODES) is None
    assert len(replica.cluster_state.reservations) == 1


async def test_a_place_lapses_when_the_pod_is_never_bound() -> None:
    replica = replica_with({"a": 1.0})
    await replica.place("p", ["a"])
    replica.clock.pass_seconds(29.9)
    assert await replica.place("q", ["a"]) is None
    replica.clock.pass_seconds(0.2)
    replica.cluster_state.report(report("a", replica.clock.now_us, 1.0))
    assert await replica.place("q", ["a"]) == "a"


async def test_a_pod_that_is_deleted_while_it_waits_gives_its_place_back() -> None:
    replica = replica_with({"a": 1.0})
    await replica.place("p", ["a"])
    replica.cluster_state.pods.hear(pod("p", 7, deleted=True))
    replica.cluster_state.reservations.settle("p")
    assert await replica.place("q", ["a"]) == "a"


async def test_a_bound_pod_counts_where_it_landed() -> None:
    replica = replica_with({"a": 1.0, "b": 1.0})
    assert await replica.place("p", NODES) == "a"
    replica.cluster_state.pods.hear(pod("p", 2, node="b"))
    replica.cluster_state.reservations.settle("p")
    assert await replica.place("q", NODES) == "a"
    assert await replica.place("r", NODES) is None


async def test_the_place_is_kept_until_a_report_covers_the_start() -> None:
    replica = replica_with({"a": 1.0})
    await replica.place("p", ["a"])
    replica.cluster_state.pods.hear(pod("p", 2, node="a"))
    replica.cluster_state.reservations.settle("p")
    for seconds, free in ((40, False), (41, False), (43, True)):
        if seconds == 41:
            replica.cluster_state.pods.hear(pod("p", 3, node="a", phase="Running", at_us=START + 41 * SECOND))
        replica.clock.now_us = START + seconds * SECOND
        replica.cluster_state.report(report("a", replica.clock.now_us, 1.0))
        assert (await replica.place("q", ["a"]) == "a") is free, seconds


async def test_a_start_that_the_api_has_cut_to_a_second_is_not_covered_too_early() -> None:
    replica = replica_with({"a": 1.0})
    at_us = START + 29_970_000
    replica.cluster_state.pods.hear(pod("p", 2, node="a", phase="Running", at_us=at_us, ready_us=START + 29 * SECOND))
    for later_us, free in ((1_200_000, False), (2_100_000, True)):
        replica.clock.now_us = at_us + later_us
        replica.cluster_state.report(report("a", replica.clock.now_us, 1.0))
        assert (await replica.place("q", ["a"]) == "a") is free


async def test_by_the_dissertation_the_place_goes_when_the_pod_leaves_pending() -> None:
    replica = replica_with({"a": 1.0}, extender_release="running")
    await replica.place("p", ["a"])
    replica.cluster_state.pods.hear(pod("p", 2, node="a"))
    replica.cluster_state.reservations.settle("p")
    assert await replica.place("q", ["a"]) is None
    replica.cluster_state.pods.hear(pod("p", 3, node="a", phase="Running"))
    assert await replica.place("q", ["a"]) == "a"


async def test_a_pod_that_another_scheduler_bound_counts_too() -> None:
    replica = replica_with({"a": 1.0})
    replica.cluster_state.pods.hear(pod("stranger", 2, node="a"))
    assert await replica.place("p", ["a"]) is None


async def test_a_restart_finds_places_and_bound_pods_again() -> None:
    bucket, clock = Bucket(), Clock()
    before = Replica(given(), clock, bucket)
    before.cluster_state.report(report("a", START, 2.0))
    await before.place("p", ["a"])
    after = Replica(given(), clock, bucket)
    after.cluster_state.report(report("a", START, 2.0))
    after.store.listen()
    after.cluster_state.pods.hear(pod("bound", 2, node="a"))
    assert await after.place("q", ["a"]) is None


async def test_two_replicas_that_have_not_heard_of_each_other_do_not_give_one_place_twice() -> None:
    bucket, clock = Bucket(), Clock()
    both = [Replica(given(), clock, bucket) for _ in range(2)]
    for replica in both:
        for name in NODES:
            replica.cluster_state.report(report(name, START, 1.0))
    placed = [await both[number % 2].place(f"p{number}", NODES) for number in range(4)]
    assert sorted(filter(None, placed)) == NODES


async def test_a_message_that_repeats_an_earlier_decision_does_not_undo_a_later_one() -> None:
    bucket, clock = Bucket(), Clock()
    first, second = (Replica(given(), clock, bucket) for _ in range(2))
    for replica in (first, second):
        for name in NODES:
            replica.cluster_state.report(report(name, START, 2.0))
    assert await second.place("u", NODES) == "a"
    first.store.listen()
    clock.pass_seconds(1)
    first.cluster_state.report(report("b", clock.now_us, 9.0))
    assert await first.place("u", NODES) == "b"
    # The second has not heard of that, and writes of the node that the pod was on before.
    assert await second.place("v", ["a"]) == "a"
    for replica in (first, second):
        replica.store.listen()
        held = {uid: replica.cluster_state.rows.names[row] for uid, row, _ in replica.cluster_state.reservations.all()}
        assert held == {"u": "b", "v": "a"}


async def test_a_bucket_that_was_made_again_is_believed_though_its_sequences_begin_again() -> None:
    bucket, clock = Bucket(), Clock()
    bucket.sequence = 500
    first, second = (Replica(given(), clock, bucket) for _ in range(2))
    for replica in (first, second):
        replica.cluster_state.report(report("a", START, 3.0))
    await first.place("p", ["a"])
    second.store.listen()
    bucket.sequence, bucket.held = 0, {}
    for replica in (first, second):
        replica.cluster_state.reservations.renewed()
    assert await first.place("q", ["a"]) == "a"
    second.store.listen()
    assert await second.place("r", ["a"]) == "a"
    assert await second.place("s", ["a"]) is None


async def test_a_message_whose_last_place_is_over_is_expected_to_have_expired_unless_it_was_seen() -> None:
    bucket, clock = Bucket(), Clock()
    replica = Replica(given(), clock, bucket)
    replica.cluster_state.report(report("a", START, 2.0))
    await replica.place("p", ["a"])
    row, reservations = replica.cluster_state.rows.row("a"), replica.cluster_state.reservations
    assert reservations.expected(row, clock.now_us) == bucket.sequence
    clock.pass_seconds(600)
    assert reservations.expected(row, clock.now_us) == 0
    # The server has not looked yet for what is over: a wrong guess is looked up, and is believed.
    sequence, message = bucket.held["a"]
    reservations.hear(message, sequence, sure=True)
    assert reservations.expected(row, clock.now_us) == sequence
    reservations.missing("a")
    assert reservations.expected(row, clock.now_us) == 0


def test_pods_that_ended_while_the_server_lost_its_buckets_are_gone_with_the_next_list() -> None:
    replica = replica_with({"a": 9.0})
    pods, clock = replica.cluster_state.pods, replica.clock
    for uid in ("lives", "ended"):
        pods.hear(pod(uid, 1, node="a"))
    pods.renewed()
    clock.pass_seconds(600)
    pods.age(clock.now_us)
    assert set(pods.bound) == {"lives", "ended"}, "the watch has not listed them yet"
    pods.hear(pod("lives", 1, node="a"))
    for seconds, left in ((1, {"lives", "ended"}), (59, {"lives", "ended"}), (3, {"lives"}), (600, {"lives"})):
        clock.pass_seconds(seconds)
        pods.age(clock.now_us)
        assert set(pods.bound) == left


def test_places_count_as_cores_that_telemetry_lacks() -> None:
    replica = replica_with({"a": 9.0})
    held = Held(
        namespace="default", name="p", workload="w", at_us=START, until_us=START + SECOND, requests={"cpu": 2.0}
    )  # fmt: skip
    replica.cluster_state.reservations.hear(Reservations(node="a", pods={"p": held}), 1)
    assert replica.cluster_state.rows["recent"].tolist()[:1] == [3.0], "half as much again as it requests"
    replica.cluster_state.reservations.lapse(START + SECOND)
    assert replica.cluster_state.rows["recent"].tolist()[:1] == [0.0]


async def test_pods_of_other_kinds_take_their_part_of_the_room() -> None:
    replica = Replica(given(), Clock())
    rooms = {"big": (2.0, 2.0), "small": (8.0, 8.0)}
    replica.cluster_state.report(report("a", START, 4.0, classes=rooms))
    assert await replica.place("b1", ["a"], workload="big") == "a"
    result = [await replica.place(f"s{number}", ["a"], workload="small") for number in range(5)]
    assert result == ["a"] * 4 + [None]


async def test_while_nothing_can_be_held_pods_wait_or_pass_as_settings_say() -> None:
    for failure, error, passing in (("closed", True, 0), ("open", False, 1)):
        bucket = Bucket()
        replica = Replica(given(extender_failure=failure), Clock(), bucket)
        replica.cluster_state.report(report("a", START, 5.0))
        bucket.away = True
        answer = await replica.selector.filter(asked("p"), ["a"])
        assert (bool(answer.error), len(answer.passing)) == (error, passing)


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"owner": "DaemonSet"}, "a DaemonSet's pod belongs to its node"),
        ({"annotations": {"spazio.placement": "off"}}, "annotation spazio.placement is off"),
    ],
)
async def test_pods_that_are_not_ours_pass_and_hold_nothing(about: dict[str, Any], why: str) -> None:
    replica = replica_with({"a": 0.0, "b": 0.0})
    answer = await replica.selector.filter(asked("p", **about), NODES)
    assert list(answer.passing) == NODES
    assert (replica.decisions[0].outcome, replica.decisions[0].note, len(replica.cluster_state.reservations)) == (
        "passed",
        why,
        0,
    )
    assert await replica.selector.prioritize(asked("p", **about), NODES) == {}


@pytest.mark.parametrize(
    "about", [{"owner": "Node"}, {"owner": "DaemonSet"}, {"annotations": {"kubernetes.io/config.source": "file"}}]
)
async def test_who_creates_a_pod_cannot_have_it_pass_as_one_of_its_node(about: dict[str, Any]) -> None:
    replica = replica_with({"a": 0.0, "b": 0.0})
    raw = asked("p", **about)
    raw["spec"].pop("affinity", None)  # to one node, which the controller of a DaemonSet sets
    assert list((await replica.selector.filter(raw, NODES)).passing) == []
    assert replica.decisions[0].outcome == "rejected"


@pytest.mark.parametrize("bound", [False, True], ids=["reserved", "bound, not running yet"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["of a class never seen", "of a class seen elsewhere"])
async def test_a_large_pod_of_a_class_that_its_node_does_not_report_takes_what_it_requests(
    bound: bool, elsewhere: bool
) -> None:
    replica = Replica(given(), Clock())
    cluster_state, free, web = replica.cluster_state, {"cpu": 16.0, "memory": 2.0**36}, (160.0, 150.0)
    for name in NODES:
        cluster_state.describe(node(name, allocatable={**free, "pods": 250.0}))
    cluster_state.report(report("a", START, 160.0, lower=150.0, classes={"web": web}, free=free))
    if elsewhere:
        seen = {"web": web, "large": (2.0, 1.6)}
        cluster_state.report(report("b", START, 160.0, lower=150.0, classes=seen, free=free))
    for name in ("large", *(f"web-{number}" for number in range(150))):
        cluster_state.pods.hear(pod(name))
    assert await replica.place("large", ["a"], workload="large", cpu="8") == "a"
    if bound:
        requests = {"cpu": 8.0, "memory": 2.0**30}
        cluster_state.pods.hear(pod("large", 2, node="a", phase="Pending", workload="large", requests=requests))
        cluster_state.reservations.settle("large")
    placed = [await replica.place(f"web-{number}", ["a"], workload="web", cpu="10m") for number in range(150)]
    # Half of what is free is left, and of a bound of 150 pods half of 160 are taken.
    assert placed.count("a") == 70
    cluster_state.pods.hear(pod("large", 3, node="a" if bound else "-", deleted=True))
    cluster_state.reservations.settle("large")
    assert [replica.cluster_state.rows[f"stated:{resource}"].max() for resource in ("cpu", "memory")] == [0.0, 0.0]


def test_resources_of_which_a_pod_requests_nothing_take_no_memory() -> None:
    replica = replica_with({"a": 1.0})
    requests = {"cpu": 0.0, **{f"example.com/{number}": 0.0 for number in range(10)}}
    replica.cluster_state.pods.hear(pod("p", node="a", requests=requests))
    assert not any(f"requested:{resource}" in replica.cluster_state.rows for resource in requests)
    replica.cluster_state.pods.hear(pod("p", 7, node="a", deleted=True))
    assert replica.cluster_state.rows["pods"].max() == 0
