"""What pods that are evicted or have ended leave for others."""

from sinks.extender.pod import parse
from tests.support.extender.placement import GIB, SECOND, START, Clock, Replica, asked, given, node, pod, report
from tests.unit.sinks.extender.nodes import NAMES, reported_with_two_small_pods, seen


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


async def test_evicting_helps_only_where_room_is_all_that_lacks() -> None:
    replica = Replica(given(extender_strategies="weighted+availability"), Clock())
    replica.cluster_state.describe(node("a", labels={"spazio.disk-type": "hdd"}))
    replica.cluster_state.pods.hear(pod("victim", 1, node="a", phase="Running", ready_us=START - 60 * SECOND))
    replica.cluster_state.report(report("a", START, 0.5))
    raw = asked("p", annotations={"spazio.disk-type": "ssd"})
    assert await replica.selector.preempt(raw, {"a": ["victim"]}) == {}


async def test_a_victim_of_an_unreported_class_leaves_what_it_requests() -> None:
    """Half a core is free, and five mean pods fit: a pod of a core needs the room of one of two cores."""
    replica = Replica(given(), Clock())
    replica.cluster_state.report(report("a", START, 5.0, lower=0.0, free={"cpu": 0.5, "memory": GIB}))
    for uid, cpu in (("large", 2.0), ("small", 0.1)):
        requests = {"cpu": cpu, "memory": GIB}
        replica.cluster_state.pods.hear(
            pod(uid, 1, node="a", phase="Running", ready_us=START - 60 * SECOND, workload=uid, requests=requests)
        )
    replica.cluster_state.report(report("a", START, 5.0, lower=0.0, free={"cpu": 0.5, "memory": GIB}))
    raw = asked("p", workload="new", cpu="1")
    assert await replica.selector.preempt(raw, {"a": ["small"]}) == {}
    assert await replica.selector.preempt(raw, {"a": ["large"]}) == {"a": ["large"]}


async def test_a_resource_that_the_pod_only_limits_is_one_of_the_nodes_and_no_other_is() -> None:
    replica = Replica(given(extender_strategies="weighted"), Clock())
    replica.cluster_state.describe(node("a"))
    raw = asked("p")
    raw["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    nodes = replica.selector._evaluator.evaluate(parse(raw), ["a"], START).nodes
    assert [name in nodes.allocatable for name in ("example.com/gpu", "example.com/other")] == [True, False]
    assert await replica.selector.preempt(raw, {"a": ["nobody"]}) == {}, "the node has none"


async def test_a_pod_that_requests_nothing_by_its_own_words_can_preempt() -> None:
    """What an explicit 0 leaves of the victim's requests is the whole pod."""
    replica = Replica(given(), Clock())
    requests = {"cpu": 2.0, "memory": GIB}
    started = START - 60 * SECOND
    replica.cluster_state.pods.hear(
        pod("victim", 1, node="a", phase="Running", ready_us=started, workload="own", requests=requests)
    )
    replica.cluster_state.report(report("a", START, 0.25, free={"cpu": 0.5, "memory": GIB}))
    raw = asked("p", workload="own")
    raw["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "0", "memory": "0"}
    assert await replica.selector.preempt(raw, {"a": ["victim"]}) == {"a": ["victim"]}
