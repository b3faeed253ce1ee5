"""Pods of promoted namespaces are placed, all others pass; what decides is one and the same."""

import pytest

from schemas.messages.placement import Decision, Promises, Spare, Trust
from schemas.settings import SettingsError
from sinks.extender.shadow import Ledger, ShadowSelector
from sinks.extender.trust import promotion
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.trust.promotion import PromotingSelector
from tests.support.extender.placement import START, Clock, Replica, asked, given, node, report
from tests.unit.sinks.extender.trust.test_promises import PROMOTING

NAMES = ["a", "b"]


class Promoting(Replica):
    """An extender that places pods of promoted namespaces."""

    def __init__(self) -> None:
        super().__init__(given(), Clock())
        own = given(**PROMOTING).extender
        self.accounts: list[Decision] = []
        self.promises = PromiseTracker(own, self.cluster_state, "e-1")
        ledger = Ledger(self.accounts.append, self.promises.expect, lambda: self.clock.now_us / 1e6)
        shadow = ShadowSelector(own, self.cluster_state, ledger, self._bind, lambda work: work(), self.clock)
        self.either = PromotingSelector(self.promises, shadow, self.selector)
        for name, room in (("a", 9.0), ("b", 0.5)):
            self.cluster_state.describe(node(name))
            self.cluster_state.report(report(name, START, room))

    def hear(self, namespace: str, against: int) -> None:
        """Hear from another replica of 200 promises of a namespace."""
        left = Spare(nodes=0.0, cores=0.0)
        seen = Promises(namespace=namespace, settled=0, broken=0, evidence=200, against=against, promoted=True)
        self.promises.hear(
            Trust(
                replica="e-2", at_us=START, mode="shadow", risk=0.1, nodes=0, cores=0.0, measured=left, requested=left,
                promises=[seen],
            )
        )  # fmt: skip


async def test_only_pods_of_promoted_namespaces_are_placed() -> None:
    either = Promoting()
    either.hear("shop", 2)
    placed = await either.either.filter(asked("p", namespace="shop"), NAMES)
    assert list(placed.passing) == ["a"]
    assert await either.either.prioritize(asked("p", namespace="shop"), ["a"]) == {"a": 10}
    assert len(either.cluster_state.reservations) == 1
    passed = await either.either.filter(asked("q", namespace="web"), NAMES)
    assert list(passed.passing) == NAMES
    assert await either.either.prioritize(asked("q", namespace="web"), NAMES) == {}
    assert len(either.cluster_state.reservations) == 1
    assert [(each.namespace, each.mode) for each in either.decisions] == [("shop", "argmax")]


async def test_they_pass_again_once_too_many_promises_are_broken() -> None:
    either = Promoting()
    for against, passing in ((2, ["a"]), (20, ["a"]), (21, NAMES), (12, NAMES), (10, ["a"])):
        either.hear("shop", against)
        answer = await either.either.filter(asked("p", namespace="shop"), NAMES)
        assert list(answer.passing) == passing, against


def test_promotion_in_another_mode_is_refused_with_what_to_do() -> None:
    with pytest.raises(SettingsError, match="--extender-mode shadow"):
        promotion.check(given(extender_promote="true").extender)
    promotion.check(given(**PROMOTING).extender)
