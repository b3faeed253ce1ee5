"""Promises settle by what nodes report afterwards, and namespaces are promoted and demoted by them."""

from typing import Any

import pytest

from schemas.messages.facts import PodFacts
from schemas.messages.placement import Promises, Spare, Trust
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.trust import room
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.trust.service import summary
from tests.support.extender.placement import SECOND, START, STATIC, Clock, Replica, given, pod, report

PROMOTING = {"extender_mode": "shadow", "extender_promote": "true", "extender_promote_promises": "20"}
TIGHT = {"lower": 1.0, "cost": 0.1}  # one more pod surely fits, and takes a tenth of the node


class Tracked(Replica):
    """An extender whose nodes report once a second, with room for one more pod."""

    def __init__(self, name: str = "e-1", **flags: str) -> None:
        super().__init__(given(**flags), Clock())
        own = self.settings.extender
        self.promises = PromiseTracker(own, self.cluster_state, name, lambda: self.clock.now_us / 1e6)
        self._pods = 0
        self.cluster_state.pods.heard_us = START

    def report(self, name: str, excess: float | None = 0.0, **changed: Any) -> None:
        self.cluster_state.report(report(name, self.clock.now_us, 1.0, excess=excess, **TIGHT | changed))

    def bind(self, where: str, *, namespace: str = "shop", room: bool = True, runs: bool = True) -> str:
        """Bind a pod to a node, with room for it or without, and let it run at once."""
        self._pods += 1
        uid = f"p{self._pods}"
        self.report(where, lower=1.0 if room else 0.0)
        facts = pod(uid, 1, node=where, namespace=namespace)
        self.promises.bound(facts, self.clock.now_us)
        self.cluster_state.pods.hear(facts)
        if runs:
            self.run(uid, where, namespace)
        return uid

    def run(self, uid: str, where: str, namespace: str = "shop") -> None:
        at_us = self.clock.now_us - 5 * SECOND  # so that the next report shows it
        self.cluster_state.pods.hear(
            pod(uid, 2, node=where, namespace=namespace, phase="Running", at_us=at_us, ready_us=at_us)
        )

    def pass_seconds(self, seconds: int, /, **excess: float) -> None:
        """Let nodes report by how much their pods exceed the policy."""
        for _ in range(seconds):
            self.clock.pass_seconds(1)
            for name, share in excess.items():
                self.report(name, share)
            self.promises.watch()

    def settle(self, number: int, *, broken: int = 0, namespace: str = "shop") -> None:
        """Let promises of as many nodes settle."""
        names = [f"n{self._pods + index}" for index in range(number)]
        for name in names:
            self.bind(name, namespace=namespace)
        self.pass_seconds(64, **{name: 0.2 if index < broken else 0.0 for index, name in enumerate(names)})

    def counts(self) -> list[tuple[str, int, int]]:
        return [(each.namespace, each.settled, each.broken) for each in self.promises.published()]

    def is_promoted(self, namespace: str = "shop") -> bool:
        self.promises.published()
        return self.promises.is_promoted(namespace)


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
    tracked.pass_seconds(17, a=0.0)
    tracked.pass_seconds(7, a=0.2)
    tracked.pass_seconds(40, a=0.0)
    assert tracked.counts() == [("shop", 1, 0)]


def test_the_minute_begins_when_the_node_shows_the_pod() -> None:
    """An image is pulled for a minute and a half; what the node does before is not the pod's."""
    tracked = Tracked()
    uid = tracked.bind("a", runs=False)
    tracked.pass_seconds(90, a=0.0)
    assert tracked.counts() == []
    tracked.run(uid, "a")
    tracked.pass_seconds(64, a=0.3)
    assert tracked.counts() == [("shop", 1, 1)]


def test_promises_of_one_minute_count_once_for_each_namespace() -> None:
    tracked = Tracked()
    for namespace in ("shop", "web", "shop"):
        tracked.bind("a", namespace=namespace)
        tracked.pass_seconds(5, a=0.3)
    tracked.pass_seconds(50, a=0.3)
    assert sorted(tracked.counts()) == [("shop", 1, 1), ("web", 1, 1)]


def test_a_namespace_whose_pods_come_all_the_time_settles_each_minute() -> None:
    tracked = Tracked()
    for _ in range(14):
        tracked.bind("a")
        tracked.pass_seconds(5, a=0.0)
    assert tracked.counts() == [("shop", 1, 0)]


def test_a_promise_late_in_a_minute_counts_in_the_next_one() -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.pass_seconds(50, a=0.0)
    tracked.bind("a", namespace="web")
    tracked.pass_seconds(14, a=0.0)
    assert sorted(tracked.counts()) == [("shop", 1, 0)]
    tracked.pass_seconds(61, a=0.3)
    assert sorted(tracked.counts()) == [("shop", 0, 0), ("web", 1, 1)]


def test_where_much_room_is_left_a_kept_promise_is_no_evidence_and_a_broken_one_is() -> None:
    tracked = Tracked()
    for excess in (0.0, 0.3):
        tracked.bind("a")
        for _ in range(64):
            tracked.clock.pass_seconds(1)
            tracked.report("a", excess, lower=5.0)
            tracked.promises.watch()
    (seen,) = tracked.promises.published()
    assert (seen.settled, seen.broken, seen.loose, seen.evidence) == (1, 1, 1, 1)


def test_one_node_says_the_same_once_in_ten_minutes() -> None:
    tracked = Tracked()
    for excess, wait in ((0.0, 0), (0.0, 0), (0.3, 0), (0.3, 600), (0.3, 0)):
        tracked.pass_seconds(wait)
        tracked.bind("a")
        tracked.pass_seconds(64, a=excess)
    assert tracked.counts() == [("shop", 3, 2)]


@pytest.mark.parametrize(("before", "counted"), [(40, [("shop", 1, 1)]), (15, [])])
def test_a_pod_without_room_ends_the_minute_which_counts_if_enough_was_seen(
    before: int, counted: list[tuple[str, int, int]]
) -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.pass_seconds(before, a=0.3)
    tracked.bind("a", room=False)
    tracked.pass_seconds(64, a=0.3)
    assert tracked.counts() == counted


def test_of_a_burst_some_pods_are_looked_at_and_the_others_promise_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tracked, looked, has = Tracked(), list[str](), room.has

    def counted(state: ClusterState, facts: PodFacts, now_us: int) -> bool:
        looked.append(facts.node)
        return has(state, facts, now_us)

    monkeypatch.setattr(room, "has", counted)
    for _ in range(1500):
        tracked.bind("a", runs=False)
    uid = tracked.bind("late", runs=False)
    assert len(looked) == 1000
    tracked.run(uid, "late")
    tracked.pass_seconds(64, late=0.3)
    assert tracked.counts() == []
    tracked.bind("late")
    tracked.pass_seconds(64, late=0.3)
    assert tracked.counts() == [("shop", 1, 1)]


def test_what_a_pod_without_room_does_is_not_held_against_the_next_one() -> None:
    tracked = Tracked()
    tracked.bind("a", room=False)
    tracked.pass_seconds(5, a=0.3)
    tracked.bind("a")
    tracked.pass_seconds(64, a=0.3)
    assert tracked.counts() == []


def test_a_silent_node_and_one_whose_excess_is_not_known_settle_nothing() -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.bind("b")
    for _ in range(64):
        tracked.clock.pass_seconds(1)
        tracked.report("b", None)
        tracked.promises.watch()
    assert tracked.counts() == []


@pytest.mark.parametrize("facts", [pod("agent", 1, node="a", owner_kind="DaemonSet"), pod(STATIC, 1, node="a")])
def test_a_pod_that_belongs_to_its_node_promises_nothing_and_ends_nothing(facts: PodFacts) -> None:
    tracked = Tracked()
    tracked.bind("a")
    tracked.promises.bound(facts, tracked.clock.now_us)
    tracked.cluster_state.pods.hear(facts)
    tracked.run(facts.pod, "a")
    tracked.pass_seconds(64, a=0.0)
    assert tracked.counts() == [("shop", 1, 0)]


def test_a_namespace_is_promoted_by_enough_evidence_and_demoted_once_the_share_exceeds_the_risk() -> None:
    tracked = Tracked(**PROMOTING, extender_promote_risk="0.2")
    tracked.settle(19)
    assert not tracked.is_promoted()
    tracked.settle(1)
    assert not tracked.promises.is_promoted("shop"), "with the next message"
    assert tracked.is_promoted()
    assert not tracked.is_promoted("web")
    tracked.settle(5, broken=5)
    assert tracked.is_promoted(), "5 of 25"
    tracked.settle(1, broken=1)
    assert not tracked.promises.is_promoted("shop"), "at once"


@pytest.mark.parametrize(("broken", "promoted"), [(4, True), (5, False)])
def test_of_a_hundred_promises_four_may_be_broken_by_default(broken: int, promoted: bool) -> None:
    tracked = Tracked(extender_mode="shadow", extender_promote="true")
    tracked.settle(100, broken=broken)
    assert tracked.is_promoted() is promoted


@pytest.mark.parametrize("flags", [{}, {"extender_mode": "shadow"}])
def test_nothing_is_promoted_unless_asked_for(flags: dict[str, str]) -> None:
    tracked = Tracked(**flags)
    tracked.settle(120)
    assert not tracked.is_promoted()


def heard(evidence: int, against: int, *, promoted: bool = False, namespace: str = "shop") -> Trust:
    none = Spare(nodes=0.0, cores=0.0)
    seen = Promises(
        namespace=namespace, settled=0, broken=0, loose=0, evidence=evidence, against=against, promoted=promoted
    )
    return Trust(
        replica="other", at_us=START, mode="shadow", risk=0.1, nodes=0, cores=0.0, measured=none, requested=none,
        promises=[seen],
    )  # fmt: skip


def published(tracked: Tracked) -> Trust:
    return summary(tracked.settings, tracked.cluster_state, tracked.promises, tracked.clock.now_us)


def test_a_replica_takes_over_what_another_has_seen_more_of_and_publishes_it() -> None:
    tracked = Tracked(**PROMOTING)
    tracked.promises.hear(heard(100, 2))
    assert tracked.is_promoted()
    tracked.promises.hear(heard(99, 99))
    assert tracked.is_promoted(), "it has seen more itself"
    (seen,) = published(tracked).promises
    assert (seen.evidence, seen.against, seen.promoted) == (100, 2, True)
    tracked.settle(9, broken=9)
    assert not tracked.is_promoted(), "11 of 109"


def test_a_replica_takes_over_a_promotion_that_still_holds_and_no_other() -> None:
    """8 of 108 would not promote, and do not demote; 20 of 108 do."""
    for against, promoted in ((8, True), (20, False)):
        tracked = Tracked(**PROMOTING)
        tracked.promises.hear(heard(108, against, promoted=True))
        assert tracked.is_promoted() is promoted
    tracked = Tracked(**PROMOTING)
    tracked.promises.hear(heard(108, 8))
    assert not tracked.is_promoted()


def test_a_replica_does_not_hear_itself() -> None:
    tracked = Tracked("other", **PROMOTING)
    tracked.promises.hear(heard(100, 0))
    assert not tracked.is_promoted()


def test_of_too_many_namespaces_the_oldest_that_is_not_promoted_is_forgotten() -> None:
    tracked = Tracked(**PROMOTING)
    tracked.promises.hear(heard(100, 0, namespace="kept"))
    assert tracked.is_promoted("kept")
    tracked.settle(1, namespace="old")
    for number in range(499):
        tracked.settle(1, namespace=f"new-{number}") if number < 3 else tracked.promises.hear(
            heard(1, 0, namespace=f"new-{number}")
        )
    names = {each.namespace for each in tracked.promises.published()}
    assert len(names) == 500
    assert "kept" in names
    assert tracked.promises.is_promoted("kept")
