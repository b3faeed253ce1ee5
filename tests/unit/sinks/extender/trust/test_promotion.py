"""Pods of promoted namespaces are placed, all others pass; what decides is one and the same."""

import pytest

from schemas.messages.placement import Decision
from schemas.settings import SettingsError
from sinks.extender.shadow import Ledger, ShadowSelector
from sinks.extender.trust import promotion
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.trust.promotion import PromotingSelector
from tests.support.extender.placement import START, Bucket, Clock, Replica, asked, given, node, report
from tests.unit.sinks.extender.trust.test_promises import PROMOTING

NAMES = ["a", "b"]


class Promoting(Replica):
    """An extender that places pods of promoted namespaces."""

    def __init__(self, bucket: Bucket | None = None) -> None:
        super().__init__(given(), Clock(), bucket)
        own = given(**PROMOTING).extender
        self.accounts: list[Decision] = []
        self.promoted: set[str] = {"shop"}
        promises = PromiseTracker(own, self.cluster_state, "e-1")
        promises.is_promoted = lambda namespace: namespace in self.promoted  # type: ignore[method-assign]
        self.ledger = Ledger(self.accounts.append, lambda: self.clock.now_us / 1e6)
        shadow = ShadowSelector(own, self.cluster_state, self.ledger, self._bind, lambda work: work(), self.clock)
        self.switched: list[str] = []
        self.either = PromotingSelector(promises, shadow, self.selector, self.switched.append)
        for name, room in (("a", 9.0), ("b", 0.5)):
            self.cluster_state.describe(node(name))
            self.cluster_state.report(report(name, START, room))


async def test_only_pods_of_promoted_namespaces_are_placed() -> None:
    either = Promoting()
    placed = await either.either.filter(asked("p", namespace="shop"), NAMES)
    assert list(placed.passing) == ["a"]
    assert await either.either.prioritize(asked("p", namespace="shop"), ["a"]) == {"a": 10}
    assert len(either.cluster_state.reservations) == 1
    passed = await either.either.filter(asked("q", namespace="web"), NAMES)
    assert list(passed.passing) == NAMES
    assert await either.either.prioritize(asked("q", namespace="web"), NAMES) == {}
    assert await either.either.preempt(asked("q", namespace="web"), {"b": ["victim"]}) == {"b": ["victim"]}
    assert len(either.cluster_state.reservations) == 1
    assert [(each.namespace, each.mode) for each in either.decisions] == [("shop", "argmax")]
    assert either.switched == []


async def test_a_pod_is_placed_or_passes_as_its_namespace_was_when_the_scheduler_filtered() -> None:
    either = Promoting()
    pod = asked("p", namespace="shop")
    assert list((await either.either.filter(pod, NAMES)).passing) == ["a"]
    either.promoted.clear()
    assert await either.either.prioritize(pod, ["a"]) == {"a": 10}
    assert list((await either.either.filter(pod, NAMES)).passing) == NAMES
    assert either.switched == ["p"]
    either.promoted.add("shop")
    assert await either.either.prioritize(pod, NAMES) == {}
    assert list((await either.either.filter(pod, NAMES)).passing) == ["a"]
    assert either.switched == ["p", "p"]


async def test_a_replica_scores_the_place_that_another_one_has_reserved() -> None:
    bucket = Bucket()
    first, second = Promoting(bucket), Promoting(bucket)
    pod = asked("p", namespace="shop")
    assert list((await first.either.filter(pod, NAMES)).passing) == ["a"]
    second.store.listen()
    assert await second.either.prioritize(pod, ["a"]) == {"a": 10}


def test_promotion_in_another_mode_is_refused_with_what_to_do() -> None:
    with pytest.raises(SettingsError, match="--extender-mode shadow"):
        promotion.check(given(extender_promote="true").extender)
    promotion.check(given(**PROMOTING).extender)
