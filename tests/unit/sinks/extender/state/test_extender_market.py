"""The past of markets as extenders hear it: how much evidence it takes, and what annotations replace."""

import logging
import math

import pytest

from schemas.messages.market import Market as Published
from schemas.messages.market import Markets
from sinks.extender.state import market
from sinks.extender.state.market import Kind, Market, Past
from tests.support.extender.placement import START, Clock, Replica, given, node, report

SPOT = {"karpenter.sh/capacity-type": "spot"}


def published(**changed: object) -> Markets:
    first = Published(type="m5", zone="a", spot=True, hours=48.0, price=0.4, interruptions=12)
    return Markets(at_us=START, since_us=0, markets=[first.model_copy(update=changed)])


def test_a_market_of_few_node_hours_is_unknown() -> None:
    assert market.of_message(published(), least_hours=24).of(SPOT, "m5", "a", {}) == Past(0.4, 0.25)
    for message in (published(hours=23.9), published(hours=0.0)):
        few = market.of_message(message, least_hours=24 if message.markets[0].hours else 0)
        assert all(map(math.isnan, few.of(SPOT, "m5", "a", {})))
    unpriced = market.of_message(published(price=None), least_hours=24).of(SPOT, "m5", "a", {})
    assert math.isnan(unpriced.price)
    assert unpriced.rate == 0.25


def test_nodes_that_are_known_before_and_after_have_what_was_published() -> None:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a", type="m5", zone="a", labels=SPOT))
    replica.cluster_state.trade(market.of_message(published(), least_hours=24))
    replica.cluster_state.describe(node("b", type="m5", zone="a", labels=SPOT))
    rows = replica.cluster_state.rows.rows(["a", "b"])
    assert replica.cluster_state.rows["median"][rows].tolist() == [0.4, 0.4]
    assert replica.cluster_state.rows["interruptions"][rows].tolist() == [0.25, 0.25]


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        ("availability", False),
        ("availability+weighted=2", True),
        ("weighted(price=0;fit=1)", False),
        ("weighted(stability=1)", True),
        ("weighted(fit=1;available=0.9)", True),
    ],
)
async def test_a_decision_says_that_past_prices_are_missed_where_strategies_rank_by_them(
    strategies: str, expected: bool
) -> None:
    replica = Replica(given(extender_strategies=strategies), Clock())
    replica.cluster_state.describe(node("a"))
    replica.cluster_state.report(report("a", START, 9.0))
    assert await replica.place("p", ["a"]) == "a"
    assert ((replica.decisions[-1].note or "").startswith("no past prices")) is expected
    replica.cluster_state.trade(market.of_message(published(), least_hours=24))
    assert await replica.place("q", ["a"]) == "a"
    assert "past prices" not in (replica.decisions[-1].note or "")
    replica.clock.pass_seconds(1801)
    replica.cluster_state.report(report("a", replica.clock.now_us, 9.0))
    assert await replica.place("r", ["a"]) == "a"
    assert ((replica.decisions[-1].note or "").startswith("no past prices")) is expected


def test_annotations_win_over_the_history_if_they_are_numbers(caplog: pytest.LogCaptureFixture) -> None:
    present = Market({Kind("m5", "a", True): Past(1.0, 0.1)})
    assert present.of(SPOT, "m5", "a", {"spazio.median-price": "0.4"}) == Past(0.4, 0.1)
    assert present.of(SPOT, "m5", "a", {"spazio.interruption-rate": "0"}) == Past(1.0, 0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert present.of(
                SPOT, "m5", "a", {"spazio.median-price": "cheap", "spazio.interruption-rate": "-1"}
            ) == Past(1.0, 0.1)
    assert [record.message for record in caplog.records] == ["market.annotation_unreadable"] * 2
