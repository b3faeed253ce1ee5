"""Promises settle by what nodes report afterwards, and namespaces are promoted and demoted by them."""

import pytest

from schemas.messages.facts import PodFacts
from schemas.messages.placement import Trust
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.trust.service import summary
from tests.support.extender.placement import SECOND, START, Clock, Replica, given, node, pod, report

PROMOTING = {"extender_mode": "shadow", "extender_promote": "true"}


class Tracked(Replica):
    """An extender whose nodes report once a second."""

    def __init__(self, name: str = "e-1", **flags: str) -> None:
        super().__init__(given(**flags), Clock())
        self.promises = PromiseTracker(self.settings.extender, self.cluster_state, name)
        self._pods = 0

    def bind(self, where: str, *, promised: str = "", namespace: str = "shop") -> None:
        """Bind a pod, of which it was promised that a node (default: this one) has room for it."""
        self._pods += 1
        self.promises.expect(f"p{self._pods}", namespace, promised or where)
        self.promises.bound(f"p{self._pods}", where, self.clock.now_us)

    def stranger(self, where: str) -> None:
        """Bind a pod of which nothing was promised."""
        self.promises.bound("stranger", where, self.clock.now_us)

    def pass_seconds(self, seconds: int, **excess: float) -> None:
        """Let nodes report by how much their pods exceed the policy."""
        for _ in range(seconds):
            self.clock.pass_seconds(1)
            for name, share in excess.items():
                self.cluster_state.report(report(name, self.clock.now_us, 0.0, excess=share or None))
            self.promises.watch(self.clock.now_us)

    def settle(self, number: int, *, broken: int = 0, namespace: str = "shop") -> None:
        for index in range(number):
            self.bind("a", namespace=namespace)
            self.pass_seconds(62, a=0.2 if index < broken else 0.0)

    def counts(self) -> list[tuple[str, int, int]]:
        return [(each.namespace, each.settled, each.broken) for each in self.promises.taken()]


def test_a_promise_is_broken_if_the_node_is_beyond_the_policy_once_the_pod_has_settled() -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.bind("b")
    tracked.pass_seconds(14, a=0.0, b=0.5)
    assert tracked.counts() == []
    tracked.pass_seconds(50, a=0.2, b=0.0)
    assert tracked.counts() == [("shop", 2, 1)]
    assert tracked.counts() == [("shop", 0, 0)], "each counts once"


def test_the_mean_counts_and_not_a_moment() -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.pass_seconds(15, a=0.0)
    tracked.pass_seconds(7, a=0.2)
    tracked.pass_seconds(40, a=0.0)
    assert tracked.counts() == [("shop", 1, 0)]


def test_promises_of_one_minute_count_once_for_each_namespace() -> None:
    tracked = Tracked()
    for namespace in ("shop", "web", "shop"):
        tracked.bind("a", namespace=namespace)
        tracked.pass_seconds(5, a=0.3)
    tracked.pass_seconds(47, a=0.3)
    assert sorted(tracked.counts()) == [("shop", 1, 1), ("web", 1, 1)]


def test_a_promise_late_in_a_minute_is_watched_for_another() -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.pass_seconds(50, a=0.0)
    tracked.bind("a", namespace="web")
    tracked.pass_seconds(12, a=0.0)
    assert sorted(tracked.counts()) == [("shop", 1, 0), ("web", 1, 0)]
    tracked.pass_seconds(50, a=0.3)
    assert sorted(tracked.counts()) == [("shop", 0, 0), ("web", 1, 1)]


@pytest.mark.parametrize("case", ["stranger", "silent", "elsewhere", "unpromised"])
def test_what_cannot_be_seen_is_not_counted(case: str) -> None:
    tracked = Tracked()
    if case == "unpromised":
        tracked.stranger("a")
    else:
        tracked.bind("a", promised="b" if case == "elsewhere" else "")
    tracked.pass_seconds(30, a=0.3)
    if case == "stranger":
        tracked.stranger("a")
    if case == "silent":
        tracked = Tracked()
        tracked.bind("a")
        tracked.pass_seconds(24, a=0.0)
    tracked.pass_seconds(62)
    assert tracked.counts() == []


def test_a_namespace_is_promoted_by_enough_kept_promises_and_demoted_by_too_many_broken_ones() -> None:
    tracked = Tracked(**PROMOTING)
    tracked.settle(99)
    assert not tracked.promises.is_promoted("shop")
    tracked.settle(1)
    assert tracked.promises.is_promoted("shop")
    assert not tracked.promises.is_promoted("web")
    tracked.settle(8, broken=8)
    assert tracked.promises.is_promoted("shop"), "8 of 108"
    tracked.settle(5, broken=5)
    assert not tracked.promises.is_promoted("shop"), "13 of 113"


def test_few_broken_promises_of_many_promote_and_more_do_not() -> None:
    for broken, promoted in ((4, True), (5, False)):
        tracked = Tracked(**PROMOTING)
        tracked.settle(100, broken=broken)
        assert tracked.promises.is_promoted("shop") is promoted


@pytest.mark.parametrize("flags", [{}, {"extender_mode": "shadow"}])
def test_nothing_is_promoted_unless_asked_for(flags: dict[str, str]) -> None:
    tracked = Tracked(**flags)
    tracked.settle(120)
    assert not tracked.promises.is_promoted("shop")


def published(tracked: Tracked) -> Trust:
    return summary(tracked.settings, tracked.cluster_state, tracked.promises, tracked.clock.now_us)


def test_a_new_replica_takes_over_what_others_have_seen_and_drops_it_after_a_day() -> None:
    earlier = Tracked("old", **PROMOTING)
    earlier.settle(100)
    later = Tracked("new", **PROMOTING)
    later.promises.hear(published(earlier))
    assert later.promises.is_promoted("shop")
    later.promises.forget(earlier.clock.now_us + 86_400 * SECOND)
    assert later.promises.is_promoted("shop")
    later.promises.forget(earlier.clock.now_us + 86_401 * SECOND)
    assert not later.promises.is_promoted("shop")


def test_a_replica_does_not_count_its_own_messages() -> None:
    tracked = Tracked(**PROMOTING)
    tracked.settle(60)
    tracked.promises.hear(published(tracked))
    tracked.settle(1)
    assert not tracked.promises.is_promoted("shop")


def pod_on(where: str, version: int, cpu: float) -> PodFacts:
    return pod(f"on-{where}", version, node=where, requests={"cpu": cpu, "memory": 0.0})


def test_measured_room_and_requests_leave_shares_of_nodes_and_of_what_they_cost() -> None:
    """Three pods of a quarter each surely fit on a, and half of it can be requested; on b no whole one, but all can."""
    tracked = Tracked()
    for name, price in (("a", 0.4), ("b", None), ("closed", 0.4), ("silent", 0.4)):
        tracked.cluster_state.describe(node(name, price=price, unschedulable=name == "closed"))
    tracked.cluster_state.pods.hear(pod_on("a", 1, cpu=2.0))
    tracked.cluster_state.pods.hear(pod_on("b", 2, cpu=0.0))
    for name, lower in (("a", 3.7), ("b", 0.4), ("closed", 9.0)):
        tracked.cluster_state.report(report(name, START, 20.0, lower=lower, cost=0.25))
    message = published(tracked)
    assert (message.nodes, message.cores, message.price) == (2, 8.0, 0.4)
    assert message.measured.model_dump() == pytest.approx({"nodes": 0.75, "cores": 3.0, "price": 0.3})
    fewer = 1 - 1 / 110
    assert message.requested.model_dump() == pytest.approx(
        {"nodes": 0.5 + fewer, "cores": 2.0 + 4 * fewer, "price": 0.2}, abs=1e-4
    )
