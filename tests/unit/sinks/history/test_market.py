"""What a market has cost and how often it took nodes away, from files that the history sink's own schema makes."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import spot
from schemas.messages.facts import NodeFacts, Taint
from schemas.messages.market import MAXIMUM_MARKETS, Market
from sinks.history.market import past
from sinks.history.tables import facts

HOUR = 3_600_000_000
START = 450_000 * HOUR
SPOT = {"karpenter.sh/capacity-type": "spot"}
NOTICE = Taint(key="aws-node-termination-handler/spot-itn", effect="NoSchedule")
REMOVED = Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")
_versions = iter(range(1, 10**9))


def state(hour: float, node: str = "n1", price: float | None = 1.0, **fields: Any) -> NodeFacts:
    """Return a node of type m5 in zone a, as it was from an hour of the window on."""
    defaults: dict[str, Any] = {"uid": f"uid-{node}", "labels": SPOT, "type": "m5", "zone": "a", "taints": []}
    return NodeFacts(
        node=node,
        version=next(_versions),
        at_us=int(START + hour * HOUR),
        created_us=START,
        ready=True,
        unschedulable=False,
        allocatable={"cpu": 4.0},
        capacity={"cpu": 4.0},
        annotations={},
        price=price,
        **defaults | fields,
    )


def written(folder: Path, *states: NodeFacts, name: str = "s-1-2") -> Path:
    """Write states as the history sink does, and return the table's folder."""
    path = folder / "nodes" / "date=2021-05-03" / "hour=08" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts.nodes(states).write_parquet(path)
    return folder / "nodes"


class Past(NamedTuple):
    """Median price and interruptions per hour."""

    price: float | None
    rate: float


def every(folder: Path, hours: float = 10) -> dict[tuple[str | None, str | None, bool], Past]:
    """Return what is known of each market over the first hours of the window."""
    markets = past.read(folder, START, int(START + hours * HOUR)).markets
    return {(each.type, each.zone, each.spot): Past(each.price, each.interruptions / each.hours) for each in markets}


def read(folder: Path, hours: float = 10) -> Past:
    """Return what is known of spot m5 in zone a over the first hours of the window."""
    return every(folder, hours)["m5", "a", True]


def test_a_price_counts_as_long_as_it_was_paid(tmp_path: Path) -> None:
    """1 for three hours, 5 for one, 2 for six: sorted, 1 ends at 3 of 10 hours and 2 at 9."""
    folder = written(tmp_path, state(0, price=1.0), state(3, price=5.0), state(4, price=2.0))
    assert read(folder).price == 2


def test_where_the_half_falls_between_two_prices_the_lower_is_the_median(tmp_path: Path) -> None:
    assert read(written(tmp_path, state(0, price=4.0), state(5, price=3.0))).price == 3


def test_all_nodes_of_a_market_count_by_their_hours(tmp_path: Path) -> None:
    """n1 pays 1 for ten hours; n2 pays 9 for six and is gone."""
    last = state(6, "n2", 9.0, deleted=True)
    assert read(written(tmp_path, state(0), state(0, "n2", 9.0), last)).price == 1


def test_a_state_from_before_the_window_counts_from_its_beginning(tmp_path: Path) -> None:
    """In it 7 was paid for four of ten hours, and 1 for six."""
    assert read(written(tmp_path, state(-1000, price=7.0), state(4, price=1.0))) == Past(1, 0)


def test_a_state_counts_no_longer_than_to_the_end_of_the_window(tmp_path: Path) -> None:
    """Of the first ten hours 7 was paid for six, and 1 for four of its fourteen; the deletion is still to come."""
    last = state(20, price=100.0), state(21, deleted=True)
    assert read(written(tmp_path, state(0, price=7.0), state(6, price=1.0), *last)) == Past(7, 0)


def test_a_state_without_a_price_is_no_price_of_0(tmp_path: Path) -> None:
    assert read(written(tmp_path, state(0, price=None), state(8, price=3.0))) == Past(3, 0)
    assert read(written(tmp_path / "none", state(0, price=None))).price is None


def test_spot_nodes_that_were_deleted_count_by_the_hours_that_all_were_there(tmp_path: Path) -> None:
    """n1 for 10 hours, n2 for 6 until it is deleted: one in 16."""
    folder = written(tmp_path, state(0), state(0, "n2"), state(6, "n2", deleted=True))
    assert read(folder).rate == 1 / 16


def test_a_notice_and_the_deletion_after_it_are_one_interruption(tmp_path: Path) -> None:
    folder = written(tmp_path, state(0), state(4, taints=[NOTICE]), state(5, deleted=True))
    assert read(folder).rate == 1 / 5


def test_a_notice_from_before_the_window_is_no_interruption_in_it(tmp_path: Path) -> None:
    folder = written(tmp_path, state(-2), state(-1, taints=[NOTICE]), state(5, deleted=True))
    assert read(folder).rate == 0


def test_what_the_autoscaler_removes_was_not_taken_away_unless_notice_was_given(tmp_path: Path) -> None:
    removed = written(tmp_path, state(0), state(4, taints=[REMOVED]), state(5, deleted=True))
    assert read(removed).rate == 0
    noticed = written(tmp_path / "noticed", state(0, taints=[NOTICE]), state(4, taints=[REMOVED, NOTICE]))
    assert read(noticed).rate == 1 / 10


def test_a_node_that_comes_back_as_another_was_taken_away(tmp_path: Path) -> None:
    folder = written(tmp_path, state(0, uid="one"), state(5, uid="two"))
    assert read(folder).rate == 1 / 10


def test_durable_nodes_are_never_interrupted_and_are_a_market_of_their_own(tmp_path: Path) -> None:
    durable = {"karpenter.sh/capacity-type": "on-demand"}
    folder = written(
        tmp_path,
        state(0, price=1.0),
        state(0, "n2", 8.0, labels=durable),
        state(5, "n2", 8.0, labels=durable, deleted=True),
        state(0, "n3", 3.0, zone="b"),
        state(0, "n4", 4.0, type=None, zone=None),
        state(4, "n4", 4.0, type=None, zone=None, deleted=True),
    )
    assert every(folder) == {
        ("m5", "a", False): Past(8, 0),
        ("m5", "a", True): Past(1, 0),
        ("m5", "b", True): Past(3, 0),
        (None, None, True): Past(4, 1 / 4),
    }


def test_a_state_that_is_in_two_files_counts_once(tmp_path: Path) -> None:
    """While hours are compacted, a merged file and its parts are there together."""
    first, second = state(0, price=1.0), state(6, price=9.0)
    written(tmp_path, first, name="s-1-1")
    written(tmp_path, second, name="s-2-2")
    assert read(written(tmp_path, first, second)) == Past(1, 0)


def test_a_file_that_cannot_be_read_is_logged_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = written(tmp_path, state(0, price=2.0))
    bad = folder / "date=2021-05-03" / "hour=09" / "s-3-3.parquet"
    bad.parent.mkdir()
    bad.write_bytes(b"PAR1 and nothing of the kind")
    other = bad.with_name("s-4-4.parquet")
    facts.nodes([state(0)]).drop("price").write_parquet(other)
    with caplog.at_level(logging.WARNING):
        assert read(folder) == Past(2, 0)
    assert [record.message for record in caplog.records] == ["market.file_ignored"] * 2
    assert {record.__dict__["file"] for record in caplog.records} == {str(bad), str(other)}


def test_a_file_that_is_gone_when_it_is_to_be_read_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = written(tmp_path, state(0, price=2.0))
    (folder / "date=2021-05-03" / "hour=08" / "s-5-5.parquet").symlink_to("gone")
    with caplog.at_level(logging.WARNING):
        assert read(folder) == Past(2, 0)
    assert not caplog.records


def test_without_a_history_there_is_no_market(tmp_path: Path) -> None:
    assert past.read(tmp_path / "nodes", START, START + HOUR).markets == []


def test_a_message_names_its_window_and_the_hours_of_each_market(tmp_path: Path) -> None:
    folder = written(tmp_path, state(0, price=6.0), state(4, deleted=True))
    result = past.read(folder, START + HOUR, START + 10 * HOUR)
    assert (result.since_us, result.at_us) == (START + HOUR, START + 10 * HOUR)
    assert result.markets == [Market(type="m5", zone="a", spot=True, hours=3.0, price=6.0, interruptions=1)]


def test_of_too_many_markets_those_with_the_most_hours_are_published(tmp_path: Path) -> None:
    count = MAXIMUM_MARKETS + 5
    states = [state(5 if number < 5 else 0, f"n{number}", type=f"t{number}") for number in range(count)]
    result = past.read(written(tmp_path, *states), START, START + 10 * HOUR).markets
    assert len(result) == MAXIMUM_MARKETS
    assert {each.hours for each in result} == {10.0}


KEYS = st.sampled_from([spot.LABEL, *spot.OF_PROVIDERS, "other"])


@pytest.mark.slow
@given(st.dictionaries(KEYS, st.sampled_from(["true", "TRUE", "false", "spot", "SPOT", "on-demand", ""]), max_size=3))
@settings(deadline=None, derandomize=True)
def test_the_history_tells_spot_nodes_by_the_same_rule(labels: dict[str, str]) -> None:
    frame = facts.nodes([state(0, labels=labels)])
    assert frame.select(past._plain())["spot"].to_list() == [spot.is_spot(labels)]
