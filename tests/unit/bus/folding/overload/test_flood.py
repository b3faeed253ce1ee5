"""A node that sends far more than an agent does is thinned before anything of other nodes, and only under load."""

import asyncio
import logging

import pytest

from bus.accounting import ledger
from bus.accounting.ledger import Account
from bus.folding.overload.flood import EVENTS, Floods, newest, without
from bus.folding.overload.shedding import BLOCKS, NONE, Shedding
from bus.folding.overload.thinning import Thinning
from bus.health import Health
from bus.reading.progress import Received

SECOND_US = 1_000_000
SUBJECTS = ("spazio.part.0.>",)
KINDS = ("samples", "pods", "edge")


def sent(node: str, count: int, at_second: float = 1, kind: str = "samples") -> list[Received]:
    return [Received(f"spazio.part.0.{kind}.{node}", 1, b"", round(at_second * SECOND_US))] * count


def test_an_agent_that_sends_all_it_has_kept_over_an_outage_does_not_flood() -> None:
    floods = Floods(KINDS)
    backlog = [message for kind in KINDS for message in sent("n1", 600, 5, kind)]
    assert floods.beyond(backlog) == set()
    assert floods.beyond(sent("n1", 10_000, 5, "containers")) == set(), "events are no blocks"
    for second in range(6, 60):
        assert floods.beyond([message for kind in KINDS for message in sent("n1", 1, second, kind)]) == set()


def test_messages_that_waited_long_are_no_flood_however_many_are_read_at_once() -> None:
    day = [message for second in range(3600) for message in sent("n1", 3, second)]
    assert Floods(KINDS).beyond(day) == set()


def test_a_node_that_sends_a_thousand_a_second_floods_after_seconds_until_it_has_stopped_for_a_while() -> None:
    floods = Floods(KINDS)
    named = [floods.beyond([*sent("bad", 1000, second), *sent("n1", 2, second)]) for second in range(10)]
    assert named[:2] == [set(), set()]
    assert named[3:] == [{"bad"}] * 7
    assert floods.beyond(sent("bad", 1000, 40)) == {"bad"}
    assert floods.beyond(sent("bad", 1000, 140)) == set()


def test_events_have_a_credit_of_their_own_for_what_an_agent_keeps_over_an_outage_and_fifty_containers_a_second() -> (
    None
):
    floods = Floods(("containers",), EVENTS)
    assert floods.beyond(sent("n1", 10_000, 5, "containers") + sent("n1", 10_000, 5)) == set()
    for second in range(6, 60):
        assert floods.beyond(sent("n1", 200, second, "containers")) == set()
    named = [floods.beyond(sent("bad", 5000, second, "containers")) for second in range(10)]
    assert named[:2] == [set(), set()]
    assert named[2:] == [{"bad"}] * 8


def test_the_credits_of_names_without_end_take_bounded_memory() -> None:
    floods = Floods(KINDS)
    for number in range(10_000):
        floods.beyond(sent(f"n{number}", 1))
    assert len(floods._left) == 4096


def test_of_a_flood_the_newest_of_each_kind_stays_and_everything_of_other_nodes_and_kinds() -> None:
    messages = [
        *sent("bad", 3), *sent("n1", 2), *sent("bad", 2, kind="pods"), *sent("bad", 2, kind="containers"),
        *sent("n1", 2), *sent("bad", 1), *sent("n2", 1),
    ]  # fmt: skip
    kept, flooded = without(messages, {"bad"}, KINDS)
    subjects = [message.subject.split(".", 3)[3] for message in kept]
    assert subjects == [
        "samples.n1", "samples.n1", "pods.bad", "containers.bad", "containers.bad", "samples.n1", "samples.n1",
        "samples.bad", "samples.n2",
    ]  # fmt: skip
    assert flooded == {"bad"}
    assert without(sent("bad", 2) + sent("n1", 1), {"n2"}, KINDS)[1] == set()


def test_of_an_edge_agent_the_newest_block_with_its_size_and_with_its_model_stay() -> None:
    payloads = [
        b'{"size":{}}',
        b'{"moment":[]}',
        b"{}",
        b'{"moment":[],"size":{}}',
        b"{}",
        b'{"moment":[1]}',
        b"{}",
        b"{}",
    ]
    messages = [Received("spazio.part.0.edge.n1", index, data) for index, data in enumerate(payloads)]
    assert newest(messages) == {3, 5, 7}
    assert newest([message._replace(subject="spazio.part.0.samples.n1") for message in messages]) == {7}


class Waiting:
    """A reader that has no further messages."""

    pending = 0

    async def read(self, **_: float) -> list[Received]:
        return []

    def take_skipped(self) -> int:
        return 0


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize(("kind", "count"), [("samples", 3000), ("containers", 30_000)])
def test_a_flood_is_left_out_while_availability_is_behind_and_counted_so_that_the_ledger_adds_up(
    kind: str, count: int, patient: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [100.0]
    account = Account("process", "S")
    shedding = Shedding(KINDS, lambda: clock[0])
    thinning = Thinning(shedding, "0", Health(), account, patient=patient, subjects=SUBJECTS)
    batch = [*sent("bad", count, kind=kind), *sent("n1", 2), *sent("n1", 2, kind=kind)]

    def thinned() -> int:
        kept = asyncio.run(thinning.thinned(Waiting(), list(batch)))  # type: ignore[arg-type] # all it asks for
        account.receive(len(kept))
        account.add("folded", len(kept))
        return len(kept)

    with caplog.at_level(logging.WARNING):
        assert thinned() == count + 4, "nothing is behind"
        shedding.observe("1", 1.5, Health(), patient=False)
        assert thinned() == 5
        assert [record.__dict__["nodes"] for record in caplog.records] == ["bad"]
        clock[0] += 21
        assert thinned() == count + 4
    statement = account.statement()
    assert statement.outcomes == {"folded": 2 * count + 13, "flooded": count - 1}
    assert ledger.faults(statement) == []


async def test_a_flood_that_goes_on_after_an_overload_does_not_keep_blocks_of_all_left_out() -> None:
    clock, health = [100.0], Health()
    shedding = Shedding(KINDS, lambda: clock[0])
    thinning = Thinning(shedding, "0", health, Account("process", "S"), patient=False, subjects=SUBJECTS)
    for _ in range(12):
        clock[0] += 1
        shedding.observe("0", 12.0, health, patient=False)
    assert shedding.level == BLOCKS
    for _ in range(240):
        clock[0] += 0.5
        good = [message for number in range(100) for message in sent(f"n{number}", 1, clock[0])]
        await thinning.thinned(Waiting(), [*sent("bad", 500, clock[0]), *good])  # type: ignore[arg-type] # all it asks for
    assert shedding.level == NONE
    assert not health.problems


def test_a_replay_that_leaves_nothing_out_folds_floods_too() -> None:
    shedding = Shedding(())
    shedding.observe("1", 100, Health(), patient=False)
    thinning = Thinning(shedding, "0", Health(), Account("process", "S"), patient=False, subjects=SUBJECTS)
    batch = sent("bad", 5000)
    assert len(asyncio.run(thinning.thinned(Waiting(), batch))) == 5000  # type: ignore[arg-type] # all it asks for
