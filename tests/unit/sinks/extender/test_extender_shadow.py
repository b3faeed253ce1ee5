"""Shadow mode changes nothing, decides what live mode would, and accounts for what the scheduler did instead."""

import pytest

from schemas.messages.placement import Decision
from sinks.extender.shadow import Ledger, ShadowSelector
from tests.support.extender.placement import START, Clock, Replica, asked, given, node, report

NAMES = ["a", "b", "c"]


class Shadow(Replica):
    """An extender in shadow mode without its network."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(given(extender_mode="shadow"), clock)
        self.accounts: list[Decision] = []
        self.ledger = Ledger(self.accounts.append, lambda: clock.now_us / 1e6)
        settings = self.settings.extender
        self.shadow = ShadowSelector(
            settings, self.cluster_state, self.ledger, self._bind, lambda callback: callback(), clock
        )


def prepared(made: Replica) -> None:
    """Tell an extender of room for nine pods on a, for one on b and for none on c."""
    for name, room in (("a", 9.0), ("b", 1.2), ("c", 0.5)):
        made.cluster_state.describe(node(name))
        made.cluster_state.report(report(name, START, room))


@pytest.fixture
def shadow() -> Shadow:
    made = Shadow(Clock())
    prepared(made)
    return made


async def test_every_node_passes_without_scores_and_nothing_is_reserved_or_retried(shadow: Shadow) -> None:
    answer = await shadow.shadow.filter(asked("p"), NAMES)
    assert (list(answer.passing), answer.error, dict(answer.unresolvable)) == (NAMES, "", {})
    assert await shadow.shadow.prioritize(asked("p"), NAMES) == {}
    assert await shadow.shadow.preempt(asked("p"), {"c": ["victim"]}) == {"c": ["victim"]}
    await shadow.shadow.filter(asked("q"), ["c"])
    assert len(shadow.cluster_state.reservations) == 0
    assert len(shadow.waiting) == 0
    assert shadow.accounts == [], "they wait for what the scheduler does"


async def test_a_decision_names_the_node_that_the_scheduler_chose_and_what_it_breaks(shadow: Shadow) -> None:
    for uid, chosen in (("p", "a"), ("q", "b"), ("r", "c")):
        await shadow.shadow.filter(asked(uid), NAMES)
        shadow.ledger.bound(uid, chosen)
    await shadow.shadow.filter(asked("s"), ["c"])
    shadow.ledger.bound("s", "elsewhere")
    shadow.ledger.bound("stranger", "a")
    accounts = [(each.pod, each.outcome, each.node, each.bound, each.breaks) for each in shadow.accounts]
    assert accounts == [
        ("p", "placed", "a", "a", []),
        ("q", "placed", "a", "b", []),
        ("r", "placed", "a", "c", ["no room for another pod of its kind"]),
        ("s", "rejected", None, "elsewhere", []),
    ]
    assert {each.mode for each in shadow.accounts} == {"shadow"}
    assert not any(each.guaranteed for each in shadow.accounts)


async def test_a_pod_that_is_not_bound_is_accounted_for_without_a_node(shadow: Shadow) -> None:
    await shadow.shadow.filter(asked("p"), NAMES)
    await shadow.shadow.filter(asked("p"), NAMES)
    assert [each.bound for each in shadow.accounts] == [None], "the earlier attempt came to nothing"
    shadow.clock.pass_seconds(299)
    shadow.ledger.lapse()
    assert len(shadow.ledger) == 1
    shadow.clock.pass_seconds(2)
    shadow.ledger.lapse()
    assert [(each.bound, each.breaks) for each in shadow.accounts] == [(None, None)] * 2
    assert len(shadow.ledger) == 0


@pytest.mark.slow
async def test_no_more_than_a_thousand_decisions_wait(shadow: Shadow) -> None:
    for number in range(1001):
        await shadow.shadow.filter(asked(f"p{number}"), NAMES)
    assert len(shadow.ledger) == 1000
    assert [each.pod for each in shadow.accounts] == ["p0"]


async def test_shadow_decides_what_live_mode_decides_on_the_same_state(shadow: Shadow) -> None:
    """Each pod of a burst is decided live; the shadow knows the same reservations as bound pods."""
    live = Replica(given(), Clock())
    prepared(live)
    for uid in ("p", "q"):
        await shadow.shadow.filter(asked(uid), NAMES)
        placed = await live.place(uid, NAMES)
        shadow.ledger.bound(uid, str(placed))
        shadow.cluster_state.report(report("a", START, 9.0))
    chosen = [(each.node, each.outcome, each.feasible, each.refused) for each in live.decisions]
    assert [(each.node, each.outcome, each.feasible, each.refused) for each in shadow.accounts] == chosen
    assert all(each.breaks == [] and each.bound == each.node for each in shadow.accounts)
