"""How much room pods that no report shows yet take from a pod of another size, whose class its node does not report."""

import pytest

from tests.support.extender.placement import START, Clock, Replica, given, node, pod, report

FREE = {"cpu": 16.0, "memory": 2.0**36}
PODS = 150.0  # that the node may have


def replica_with(mean: float, classes: dict[str, tuple[float, float]], *waiting: str) -> Replica:
    """Return an extender with one node, 16 cores of which are free, and pods that wait."""
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a", allocatable={**FREE, "pods": PODS + 1}))
    replica.cluster_state.report(report("a", START, mean, classes=classes, free=FREE))
    # A pod of the class has run elsewhere, so that what it takes is no guess.
    ran = pod("ran", node="b", phase="Running", workload="asked", at_us=START - 120_000_000)
    replica.cluster_state.pods.hear(ran)
    replica.cluster_state.report(report("b", START, mean))
    for name in waiting:
        replica.cluster_state.pods.hear(pod(name))
    return replica


@pytest.mark.parametrize("running", [False, True], ids=["reserved", "bound, not running yet"])
async def test_large_pods_on_their_way_leave_small_ones_of_an_unreported_class_only_the_rest(running: bool) -> None:
    """Room for 4 large ones or 80 small ones, of which three large ones take 60; of the bound, 48, nothing is left."""
    large, small = [f"large-{number}" for number in range(3)], [f"small-{number}" for number in range(50)]
    replica = replica_with(4.0, {"large": (4.0, 4.0)}, *large, *small)
    assert [await replica.place(name, ["a"], workload="large", cpu="4") for name in large] == ["a"] * 3
    if running:
        for name in large:
            requests = {"cpu": 4.0, "memory": 2.0**27}
            replica.cluster_state.pods.hear(pod(name, 2, node="a", workload="large", requests=requests))
            replica.cluster_state.reservations.settle(name)
    placed = [await replica.place(name, ["a"], workload="asked", cpu="200m") for name in small]
    assert placed.count("a") == 0


async def test_a_small_pod_on_its_way_leaves_room_for_a_large_one_of_an_unreported_class() -> None:
    """16 cores surely hold 1.6 pods of 6 cores, and each pod of 0.1 cores takes a sixtieth of one."""
    replica = replica_with(160.0, {"web": (160.0, 150.0)}, "web", "large")
    for name in ("other", "web"):
        replica.cluster_state.pods.hear(pod(name, 2, node="a", workload=name))
    assert await replica.place("large", ["a"], workload="asked", cpu="6") == "a"
    assert await replica.place("next", ["a"], workload="asked", cpu="6") is None
