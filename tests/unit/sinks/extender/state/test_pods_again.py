"""Pods that were taken for gone, and are there again."""

from tests.support.extender.placement import START, Clock, Replica, given, pod, report


def replica_with(room: float) -> Replica:
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, room))
    return replica


async def test_pods_that_a_stalled_watch_lists_late_count_again() -> None:
    replica = replica_with(9.0)
    pods, clock = replica.cluster_state.pods, replica.clock
    for uid in ("first", "late", "ended"):
        pods.hear(pod(uid, 5, node="a"))
    pods.hear(pod("waits", 5))
    pods.renewed()
    pods.hear(pod("first", 5, node="a"))
    pods.age(clock.now_us)
    clock.pass_seconds(61)  # the watch cannot publish meanwhile
    pods.age(clock.now_us)
    assert (set(pods.bound), set(pods.pending)) == ({"first"}, set())
    pods.hear(pod("ended", 4, node="a"))  # older than what was known
    for facts in (pod("late", 5, node="a"), pod("waits", 5)):
        pods.hear(facts)
        replica.cluster_state.reservations.settle(facts.pod)
    assert (set(pods.bound), set(pods.pending)) == ({"first", "late"}, {"waits"})


async def test_what_is_held_for_a_pod_that_is_there_again_counts() -> None:
    replica = replica_with(1.0)
    pods = replica.cluster_state.pods
    pods.hear(pod("p", 1))
    pods.forget("p", None)
    pods.hear(pod("p", 2))
    replica.cluster_state.reservations.settle("p")
    assert await replica.place("p", ["a"]) == "a"
    assert await replica.place("q", ["a"]) is None
