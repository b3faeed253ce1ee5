"""What a client that invents nodes and pods can take: no memory, and room on few nodes for a short time."""

import tracemalloc

import pytest

from schemas.messages.facts import UNBOUND
from schemas.sections.placement import Extender
from schemas.settings import SettingsError
from sinks.extender.web import access
from tests.support.extender.placement import SECOND, START, Bucket, Clock, Replica, asked, given, node, pod, report

INVENTED = [f"invented-{number}" for number in range(2000)]


def watched(rooms: dict[str, float], clock: Clock | None = None, bucket: Bucket | None = None) -> Replica:
    """Return a replica with these nodes that a cluster watch serves."""
    replica = Replica(given(), clock or Clock(), bucket)
    for name, room in rooms.items():
        replica.cluster_state.report(report(name, START, room))
    replica.cluster_state.pods.hear(pod("first", 1, node=UNBOUND))
    return replica


def see(replica: Replica, uid: str, *, at_us: int = START) -> None:
    replica.cluster_state.pods.hear(pod(uid, 2, at_us=at_us))
    replica.cluster_state.reservations.settle(uid)


async def test_invented_nodes_get_no_rows_and_nothing_is_reserved_there() -> None:
    replica = Replica(given(), Clock())
    answer = await replica.selector.filter(asked("p"), INVENTED)
    assert list(answer.passing) == INVENTED
    assert await replica.selector.prioritize(asked("p"), INVENTED[:2]) == {}
    assert (len(replica.cluster_state.rows), len(replica.cluster_state.reservations)) == (0, 0)
    assert len(replica.cluster_state.rows.names) <= 1, "all of them share one row"
    assert (replica.decisions[0].node, replica.decisions[0].guaranteed) == (None, False)


async def test_an_invented_node_ranks_behind_one_that_the_api_has() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("true"))
    replica.cluster_state.pods.hear(pod("there", 1, node="true"))
    assert await replica.place("p", ["invented", "true"]) == "true"


async def test_a_node_that_was_unknown_is_evaluated_like_any_other_once_it_reports() -> None:
    replica = Replica(given(), Clock())
    await replica.place("p", ["late", "other"])
    replica.cluster_state.report(report("late", START, 1.0))
    assert await replica.place("p", ["late", "other"]) == "late"
    assert replica.decisions[-1].guaranteed
    assert await replica.place("q", ["late"]) is None


@pytest.mark.slow
async def test_names_that_a_client_invents_are_not_kept_with_a_rejected_pod() -> None:
    replica = Replica(given(extender_unknown="reject"), Clock())
    await replica.place("warm", [f"{name}-warm" for name in INVENTED])
    tracemalloc.start()
    try:
        for number in range(20):
            names = [f"{name}-{number}" for name in INVENTED]
            assert await replica.place(f"p{number}", names) is None
            replica.decisions.clear()
            del names
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000, "40,000 names take four times as much"


async def test_pods_that_the_watch_never_reported_hold_room_on_a_node_for_a_few_and_a_short_time_only() -> None:
    replica = watched({"a": 100.0})
    placed = [await replica.selector.filter(asked(f"p{number}"), ["a"]) for number in range(40)]
    assert sum(not answer.error for answer in placed) == 16
    assert "has not reported this pod, and 16 such pods hold room on the node" in placed[-1].error
    assert len(replica.cluster_state.reservations) == 16
    replica.clock.pass_seconds(10.1)
    assert (await replica.selector.filter(asked("q"), ["a"])).error, "nothing says that the watch runs"
    replica.cluster_state.pods.hear(pod("later", 1, node=UNBOUND, at_us=replica.clock.now_us))
    assert not (await replica.selector.filter(asked("q"), ["a"])).error
    assert len(replica.cluster_state.reservations) == 1


async def test_while_the_watch_is_away_no_room_is_given_twice_however_long_a_pod_takes_to_start() -> None:
    replica = watched({"a": 12.0})
    placed = 0
    for second in range(240):
        placed += await replica.place(f"p{second}", ["a"]) == "a"
        replica.clock.pass_seconds(1)
        replica.cluster_state.report(report("a", replica.clock.now_us, 12.0))
        replica.cluster_state.reservations.lapse(replica.clock.now_us)
    assert placed == 12
    # It is back: what is bound counts as such, what waits has had its time, the rest is unknown to it.
    replica.cluster_state.pods.hear(pod("p0", 1, node="a", at_us=replica.clock.now_us))
    see(replica, "p1", at_us=replica.clock.now_us)
    replica.cluster_state.reservations.settle("p0")
    replica.cluster_state.reservations.lapse(replica.clock.now_us)
    assert len(replica.cluster_state.reservations) == 0


@pytest.mark.slow
async def test_there_is_a_limit_in_total_too() -> None:
    names = [f"n{number}" for number in range(20)]
    replica = watched(dict.fromkeys(names, 100.0))
    placed = [await replica.selector.filter(asked(f"p{number}"), names) for number in range(300)]
    assert sum(not answer.error for answer in placed) == 256
    assert "256 such pods hold room; it is tried again" in placed[-1].error


async def test_a_pod_that_the_watch_reported_is_placed_whatever_others_invent_and_keeps_its_room() -> None:
    replica = watched({"a": 100.0})
    for number in range(40):
        await replica.selector.filter(asked(f"invented-{number}"), ["a"])
    for uid in ("before", "after"):
        if uid == "before":
            see(replica, uid)
        answer = await replica.selector.filter(asked(uid), ["a"])
        assert bool(answer.error) is (uid == "after")
    see(replica, "after")
    assert not (await replica.selector.filter(asked("after"), ["a"])).error
    replica.clock.pass_seconds(20)
    see(replica, "later", at_us=replica.clock.now_us)
    replica.cluster_state.reservations.lapse(replica.clock.now_us)
    assert {uid for uid, _, _ in replica.cluster_state.reservations.all()} == {"before", "after"}


async def test_a_pod_that_the_watch_reports_later_keeps_its_room_for_the_whole_time() -> None:
    replica = watched({"a": 1.0})
    assert await replica.place("p", ["a"]) == "a"
    replica.clock.pass_seconds(9)
    see(replica, "p")
    replica.clock.pass_seconds(20)
    assert await replica.place("q", ["a"]) is None
    replica.clock.pass_seconds(2)
    replica.cluster_state.report(report("a", replica.clock.now_us, 1.0))
    assert await replica.place("q", ["a"]) == "a"


async def test_what_lapsed_unconfirmed_comes_back_neither_here_nor_with_another_replica() -> None:
    clock, bucket = Clock(), Bucket()
    first, second = (watched({"a": 9.0}, clock, bucket) for _ in range(2))
    for number in range(3):
        await first.place(f"p{number}", ["a"])
    second.store.listen()
    assert len(second.cluster_state.reservations) == 3
    clock.pass_seconds(16)
    for replica in (first, second):
        see(replica, "q", at_us=clock.now_us)
    await second.place("q", ["a"])
    first.store.listen()
    for replica in (first, second):
        replica.cluster_state.reservations.lapse(clock.now_us)
        assert [uid for uid, _, _ in replica.cluster_state.reservations.all()] == ["q"]
    assert list(bucket.held["a"][1].pods) == ["q"]


async def test_without_a_watch_nothing_can_be_confirmed_and_reservations_live_as_ever() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 40.0))
    placed = [await replica.place(f"p{number}", ["a"]) for number in range(41)]
    assert placed == ["a"] * 40 + [None]
    replica.clock.pass_seconds(29)
    replica.cluster_state.reservations.lapse(replica.clock.now_us)
    assert len(replica.cluster_state.reservations) == 40


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "extender.example", ""])
def test_off_loopback_somebody_must_say_who_may_ask(host: str) -> None:
    with pytest.raises(SettingsError, match=r"--extender-tls-client-ca, or set --extender-allow-anonymous true"):
        access.check(Extender(host=host))
    access.check(Extender(host=host, allow_anonymous=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_on_loopback_the_extender_starts_as_it_is(host: str) -> None:
    access.check(Extender(host=host))


async def test_pods_beyond_the_limit_of_the_best_node_go_to_the_next_best_while_the_watch_is_away() -> None:
    replica = watched({"big": 100.0, "small": 30.0, "tiny": 5.0})
    replica.cluster_state.describe(node("silent", created_us=START - 3600 * SECOND))
    names = ["silent", "tiny", "small", "big"]
    placed = [await replica.place(f"p{number}", names) for number in range(16 + 16 + 5)]
    assert placed == ["big"] * 16 + ["small"] * 16 + ["tiny"] * 5
    assert all(decision.guaranteed for decision in replica.decisions)
    answer = await replica.selector.filter(asked("q"), names)
    assert "has not reported this pod" in answer.error, "no pod goes to a node without telemetry for that"
    see(replica, "q")
    assert await replica.place("q", names) == "big"


async def test_in_total_unreported_pods_hold_no_more_room_than_those_of_sixteen_nodes() -> None:
    names = [f"n{number}" for number in range(20)]
    replica = watched(dict.fromkeys(names, 100.0))
    answers = [await replica.selector.filter(asked(f"p{number}"), names) for number in range(300)]
    assert sum(not answer.error for answer in answers) == 16 * 16
    assert len(replica.cluster_state.reservations) == 16 * 16
