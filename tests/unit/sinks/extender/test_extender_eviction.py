"""A pod that others were evicted for goes to the room that they leave before reports show it, and no other pod does."""

from typing import Any

from sinks.extender.pod import parse
from sinks.extender.strategy.availability import FULL
from tests.support.extender.placement import SECOND, START, Clock, Replica, asked, given, pod, report

SETTLE_SECONDS = 2.0


async def full_nodes(*names: str, room: float = 0.25) -> Replica:
    """Return an extender that has agreed to evict one pod of each of these nodes, which have so much room."""
    replica = Replica(given(extender_settle_seconds=str(SETTLE_SECONDS)), Clock())
    for name in names:
        ready_us = START - 60 * SECOND
        replica.cluster_state.pods.hear(pod(f"victim-{name}", 1, node=name, phase="Running", ready_us=ready_us))
        replica.cluster_state.report(report(name, START, room))
    victims = {name: [f"victim-{name}"] for name in names}
    assert (await replica.selector.filter(asked("urgent"), list(names))).passing == []
    assert await replica.selector.preempt(asked("urgent"), victims) == victims
    return replica


def evict(replica: Replica, name: str) -> None:
    at_us = replica.clock.now_us
    replica.cluster_state.pods.hear(pod(f"victim-{name}", 2, node=name, phase="Running", deleted=True, at_us=at_us))


def tell(replica: Replica, name: str, room: float) -> None:
    replica.cluster_state.report(report(name, replica.clock.now_us, room))


def nominated(node: str) -> dict[str, Any]:
    raw = asked("urgent")
    return {**raw, "status": {**raw["status"], "nominatedNodeName": node}}


async def passing(replica: Replica, raw: dict[str, Any], *names: str) -> list[str]:
    answer = await replica.selector.filter(raw, list(names))
    assert all(FULL in reason for reason in answer.unresolvable.values())
    return list(answer.passing)


async def test_the_room_of_victims_counts_for_that_pod_alone_before_a_report_shows_it() -> None:
    replica = await full_nodes("a", "b")
    replica.clock.pass_seconds(2)
    evict(replica, "a")
    replica.clock.pass_seconds(1)
    for name in ("a", "b"):
        tell(replica, name, 0.25)
    assert await passing(replica, asked("other"), "a", "b") == []
    # It was not evicted for on the other node, which no pod has left.
    assert await passing(replica, asked("urgent"), "a", "b") == ["a"]
    assert [held for held, _, _ in replica.cluster_state.reservations.all()] == ["urgent"]


async def test_the_scheduler_may_know_sooner_that_the_victims_are_gone() -> None:
    replica = await full_nodes("a", "b")
    # Facts are on their way for two seconds; it does not ask about a node whose victims are still there.
    replica.clock.pass_seconds(1.9)
    tell(replica, "a", 0.25)
    assert await passing(replica, asked("urgent"), "a") == ["a"]
    replica.clock.pass_seconds(0.2)
    for name in ("a", "b"):
        tell(replica, name, 0.25)
    assert await passing(replica, asked("urgent"), "a", "b") == []
    assert await passing(replica, nominated("b"), "a", "b") == ["b"]


async def test_room_that_a_report_shows_already_is_not_counted_twice() -> None:
    replica = await full_nodes("a")
    evict(replica, "a")
    for room in (0.25, 0.75, 1.25):
        replica.clock.pass_seconds(0.5)
        tell(replica, "a", room)
        nodes = replica.selector._evaluator.evaluate(parse(asked("urgent")), ["a"], replica.clock.now_us).nodes
        assert nodes.room.tolist() == nodes.sure.tolist() == [1.25]


async def test_it_counts_until_a_report_that_shows_it_and_not_longer() -> None:
    replica = await full_nodes("a")
    evict(replica, "a")
    assert await passing(replica, asked("urgent"), "a") == ["a"]
    replica.clock.pass_seconds(SETTLE_SECONDS)
    # Somebody else takes the room meanwhile.
    tell(replica, "a", 0.0)
    assert await passing(replica, asked("urgent"), "a") == []


async def test_victims_that_never_end_do_not_count_for_ever() -> None:
    replica = await full_nodes("a")
    assert await passing(replica, nominated("a"), "a") == ["a"]
    replica.clock.pass_seconds(601)
    tell(replica, "a", 0.25)
    assert await passing(replica, nominated("a"), "a") == []


async def test_other_victims_replace_those_before() -> None:
    replica = await full_nodes("a", "b")
    evict(replica, "a")
    replica.clock.pass_seconds(2)
    for name in ("a", "b"):
        tell(replica, name, 0.25)
    assert await replica.selector.preempt(asked("urgent"), {"b": ["victim-b"]}) == {"b": ["victim-b"]}
    assert await passing(replica, asked("urgent"), "a") == []


async def test_the_reservation_of_a_victim_that_no_report_shows_yet_is_not_counted_besides() -> None:
    replica = Replica(given(extender_settle_seconds=str(SETTLE_SECONDS)), Clock())
    replica.cluster_state.pods.hear(pod("victim-a", 1, node="a", phase="Running", ready_us=START))
    tell(replica, "a", 1.25)
    assert await passing(replica, asked("urgent"), "a") == []
    assert await replica.selector.preempt(asked("urgent"), {"a": ["victim-a"]}) == {"a": ["victim-a"]}
    evict(replica, "a")
    nodes = replica.selector._evaluator.evaluate(parse(asked("urgent")), ["a"], replica.clock.now_us).nodes
    assert nodes.room.tolist() == [1.25]
