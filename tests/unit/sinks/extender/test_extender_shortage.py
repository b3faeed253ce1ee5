"""What lacks room: which nodes are full for the pods that wait, and which have pods that would fit nowhere else."""

from typing import Any

import pytest

from schemas.messages.estimate import ClassRoom
from schemas.messages.facts import Taint
from schemas.messages.placement import Shortage
from sinks.extender.shortage import Shortages
from sinks.extender.state import stranded
from sinks.extender.strategy import availability
from tests.support.extender.placement import SECOND, START, STATIC, Clock, Replica, given, node, pod, report

FULL = Taint(key="spazio.io/full", value="20261124T081049Z", effect="NoSchedule")


class Lab:
    """An extender, and its account of what lacks room."""

    def __init__(self, **rooms: float) -> None:
        self.replica = Replica(given(), Clock())
        self.shortages = Shortages(self.replica.settings, self.replica.cluster_state, self.replica.waiting, "e-1")
        for name, room in rooms.items():
            self.replica.cluster_state.describe(node(name))
            self.report(name, room)

    def report(self, name: str, room: float, **classes: float) -> None:
        rooms = {workload: (each, each) for workload, each in classes.items()}
        self.replica.cluster_state.report(report(name, self.replica.clock.now_us, room, classes=rooms))

    async def place(self, uid: str, *names: str, **about: Any) -> str | None:
        return await self.replica.place(uid, list(names), **about)

    async def summary(self) -> Shortage:
        return await self.shortages.summary(self.replica.clock.now_us)

    async def full(self) -> list[str]:
        return (await self.summary()).full


async def test_nodes_that_refused_a_waiting_pod_for_lack_of_room_are_full_until_they_have_room() -> None:
    lab = Lab(a=0.5, b=0.25, c=0.75)
    assert await lab.full() == []
    assert await lab.place("p", "a", "b") is None
    assert await lab.full() == ["a", "b"]  # of c nobody has asked
    lab.report("b", 1.5)
    assert await lab.full() == ["a"]


async def test_nothing_is_full_once_nothing_waits() -> None:
    for gone in (pod("p", 2, node="elsewhere"), pod("p", 3, deleted=True)):
        lab = Lab(a=0.5)
        await lab.place("p", "a")
        lab.replica.cluster_state.pods.hear(gone)
        summary = await lab.summary()
        assert (summary.pods, summary.waiting, summary.full) == (0, [], [])


async def test_a_node_with_room_for_one_kind_that_waits_is_not_full() -> None:
    lab = Lab(a=0.5, b=0.5)
    for name in ("a", "b"):
        lab.report(name, 0.5, large=0.25, small=0.5)
    await lab.place("p", "a", "b", workload="large")
    await lab.place("q", "a", "b", workload="small")
    assert await lab.full() == ["a", "b"]
    lab.report("a", 5.0, large=0.5, small=5.0)
    assert await lab.full() == ["b"]


async def test_what_is_no_measured_room_makes_no_node_full() -> None:
    lab = Lab(a=50.0)
    assert await lab.place("p", "a", cpu="100") is None  # the simulation of an autoscaler sees that by itself
    assert (await lab.summary()).pods == 1
    assert await lab.full() == []


async def test_a_node_whose_room_is_only_held_is_full_after_half_a_minute() -> None:
    """Who has just started often takes less than was held for it."""
    lab = Lab(a=1.5)
    assert await lab.place("p", "a") == "a"
    lab.replica.cluster_state.pods.hear(pod("p", 2, node="a", workload="default/p"))
    assert await lab.place("q", "a") is None
    seen = []
    for _ in range(4):
        seen.append(await lab.full())
        lab.replica.clock.pass_seconds(10)
        lab.report("a", 1.5)
    assert seen == [[], [], [], ["a"]]
    lab.report("a", 0.5)
    assert await lab.full() == ["a"]
    lab.report("a", 2.5)
    assert await lab.full() == []


async def test_so_is_a_node_whose_open_room_is_held_while_the_cost_of_a_class_is_learned() -> None:
    lab = Lab(a=14.0)

    def learned(share: float) -> None:
        web = ClassRoom(available=14, lower=14, binding="cpu", pods=1, cpu=0.1, memory=0.1, prior=1 - share)
        reported = report("a", lab.replica.clock.now_us, 14.0).model_copy(update={"classes": {"web": web}})
        lab.replica.cluster_state.report(reported)

    learned(0.4)
    for number in range(7):
        assert await lab.place(f"p{number}", "a", workload="web") == "a"
        lab.replica.cluster_state.pods.hear(pod(f"p{number}", 2, node="a", workload="web"))
        lab.replica.cluster_state.reservations.settle(f"p{number}")
    assert await lab.place("q", "a", workload="web") is None
    assert lab.replica.decisions[-1].refused == {availability.PARTIAL: 1}
    for share, full in ((0.4, []), (0.4, ["a"]), (0.6, [])):
        learned(share)
        assert await lab.full() == full
        lab.replica.clock.pass_seconds(30)


async def test_a_node_that_has_fallen_silent_is_not_full() -> None:
    lab = Lab(a=0.5)
    await lab.place("p", "a")
    lab.replica.clock.pass_seconds(lab.replica.settings.cache.expiry_seconds + 1)
    assert await lab.full() == []


async def test_a_new_node_that_takes_one_pod_until_it_reports_is_not_full() -> None:
    lab = Lab(a=0.5)
    lab.replica.cluster_state.describe(node("new"))
    assert await lab.place("p", "new") == "new"
    assert await lab.place("q", "a", "new") is None
    assert await lab.full() == ["a"]


async def test_a_node_that_the_taint_hides_from_the_scheduler_stays_full_while_it_has_no_room() -> None:
    lab = Lab(a=0.5, b=0.25)
    await lab.place("p", "a", "b")
    assert await lab.full() == ["a", "b"]
    lab.replica.cluster_state.describe(node("a", 2, taints=[FULL]))
    await lab.place("p", "b")
    assert await lab.full() == ["a", "b"]
    assert await lab.full() == ["a", "b"]
    lab.report("a", 1.5)
    assert await lab.full() == ["b"]
    lab.report("a", 0.5)
    assert await lab.full() == ["a", "b"]
    # Without the taint the scheduler would have asked.
    lab.replica.cluster_state.describe(node("a", 3))
    assert await lab.full() == ["b"]


async def test_a_node_that_is_gone_is_not_full() -> None:
    lab = Lab(a=0.5, b=0.25)
    await lab.place("p", "a", "b")
    lab.replica.cluster_state.describe(node("a", 2, taints=[FULL]))
    assert await lab.full() == ["a", "b"]
    await lab.place("p", "b")
    lab.replica.cluster_state.describe(node("a", 3, deleted=True))
    assert await lab.full() == ["b"]


async def test_a_summary_names_who_waits_and_how_long_it_is_valid() -> None:
    lab = Lab(a=0.5)
    for number in range(40):
        await lab.place(f"p{number}", "a", workload="web")
    await lab.place("q", "a", workload="job")
    summary = await lab.summary()
    assert (summary.replica, summary.pods) == ("e-1", 41)
    assert [(each.workload, each.pods) for each in summary.waiting] == [("web", 40), ("job", 1)]
    assert all(0 <= summary.at_us - each.since_us < 60 * SECOND for each in summary.waiting)
    seconds = lab.replica.settings.extender.shortage_seconds
    assert summary.until_us - summary.at_us == 5 * seconds * SECOND


async def test_a_summary_is_bounded_however_many_kinds_wait() -> None:
    lab = Lab(a=0.5)
    for number in range(100):
        await lab.place(f"p{number}", "a", workload=f"class-{number}")
    summary = await lab.summary()
    assert (summary.pods, len(summary.waiting), summary.full) == (100, 64, ["a"])


class Cluster(Lab):
    """Nodes with pods that telemetry shows."""

    def bind(self, name: str, workload: str, count: int, **about: Any) -> None:
        for number in range(count):
            facts = {"phase": "Running", "ready_us": START, "workload": workload, "requests": {}} | about
            uid = about.get("pod", f"{name}-{workload}-{number}")
            self.replica.cluster_state.pods.hear(pod(uid, 2, node=name, **facts))

    async def stranded(self) -> list[str]:
        return await stranded.find(self.replica.cluster_state, self.replica.clock.now_us)

    def settle(self) -> None:
        """Let time pass until reports show the pods."""
        self.replica.clock.pass_seconds(10)


async def test_a_node_is_stranded_if_its_pods_are_more_than_the_places_that_others_have() -> None:
    lab = Cluster(a=1.0, b=1.0)
    lab.bind("a", "web", 3)
    lab.bind("b", "web", 3)
    lab.settle()
    lab.report("a", 5.0, web=5.0)
    lab.report("b", 5.0, web=2.9)
    assert await lab.stranded() == ["a"]
    lab.report("b", 5.0, web=3.0)
    assert await lab.stranded() == []
    # Places are counted on all other nodes together, and on whole pods.
    lab.report("a", 5.0, web=1.9)
    lab.report("b", 5.0, web=2.0)
    lab.replica.cluster_state.describe(node("c"))
    lab.report("c", 5.0, web=1.0)
    assert await lab.stranded() == ["b"]


async def test_pods_of_several_classes_share_the_places() -> None:
    lab = Cluster(a=1.0, b=1.0)
    lab.bind("a", "web", 1)
    lab.bind("a", "job", 1)
    lab.settle()
    lab.report("a", 1.0)
    lab.report("b", 1.0, web=1.0, job=1.0)
    assert await lab.stranded() == ["a"]
    lab.report("b", 1.0, web=2.0, job=2.0)
    assert await lab.stranded() == []


@pytest.mark.parametrize(("owner", "result"), [("DaemonSet", []), ("ReplicaSet", ["a"])])
async def test_pods_that_belong_to_their_node_need_no_place(owner: str, result: list[str]) -> None:
    lab = Cluster(a=1.0, b=0.0)
    lab.bind("a", "web", 2, owner_kind=owner, owner="o")
    lab.settle()
    lab.report("a", 1.0, web=1.0)
    lab.report("b", 0.0, web=0.0)
    assert await lab.stranded() == result


async def test_a_static_pod_needs_no_place() -> None:
    lab = Cluster(a=1.0, b=0.0)
    lab.bind("b", "web", 1)
    lab.bind("a", "proxy", 1, pod=STATIC)
    lab.settle()
    lab.report("a", 1.0)
    lab.report("b", 0.0)
    assert await lab.stranded() == []


async def test_a_node_without_pods_is_not_stranded_and_the_only_node_is() -> None:
    lab = Cluster(a=1.0)
    lab.settle()
    lab.report("a", 1.0)
    assert await lab.stranded() == []
    lab.bind("a", "web", 1)
    assert await lab.stranded() == ["a"]


@pytest.mark.parametrize(
    ("state", "result"),
    [
        ({"unschedulable": True}, ["a"]),
        ({"ready": False}, ["a"]),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, ["a"]),
        ({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, []),
    ],
)
async def test_nodes_that_take_no_pods_have_no_places(state: dict[str, Any], result: list[str]) -> None:
    lab = Cluster(a=1.0, b=50.0)
    lab.bind("a", "web", 1)
    lab.settle()
    lab.report("a", 1.0, web=1.0)
    lab.report("b", 50.0, web=50.0)
    assert await lab.stranded() == []
    lab.replica.cluster_state.describe(node("b", 2, **state))
    assert await lab.stranded() == result


async def test_nodes_that_are_cordoned_or_silent_have_no_places() -> None:
    lab = Cluster(a=1.0, b=50.0, c=50.0)
    lab.bind("a", "web", 1)
    lab.settle()
    lab.report("a", 1.0, web=1.0)
    lab.report("b", 50.0, web=50.0)
    assert await lab.stranded() == []
    lab.replica.cluster_state.describe(node("b", 2, unschedulable=True))
    lab.replica.clock.pass_seconds(lab.replica.settings.cache.expiry_seconds)
    lab.report("a", 1.0, web=1.0)
    assert await lab.stranded() == ["a"]
    lab.replica.clock.pass_seconds(lab.replica.settings.cache.expiry_seconds + 1)
    assert await lab.stranded() == []  # nobody reports, so nothing is known


async def test_rare_classes_count_as_pods_without_requests() -> None:
    lab = Cluster(a=1.0, b=3.0)
    for number in range(40):
        lab.bind("a", f"class-{number}", 1)
    lab.settle()
    lab.report("a", 1.0)
    lab.report("b", 1000.0)
    assert await lab.stranded() == []
    lab.report("b", 20.0)
    assert await lab.stranded() == ["a"]
