"""Accounts add up, and say so when they do not."""

import pytest

from bus.accounting import ledger
from bus.accounting.ledger import MINUTES, Account, Statement, faults


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


def account(*, whole: bool = True) -> tuple[Account, Clock]:
    clock = Clock()
    return Account("history", "S", whole=whole, clock=clock), clock


def test_every_message_received_has_an_outcome_or_waits() -> None:
    opened, _ = account()
    opened.receive(10, 10)
    opened.add("stored", 6)
    opened.add("refused", 1)
    statement = opened.statement()
    assert (statement.received, statement.outcomes, statement.waiting) == (10, {"stored": 6, "refused": 1}, 3)
    assert faults(statement) == []
    assert faults(statement._replace(waiting=1)) == ["2 of 10 received are unaccounted for"]


def test_sequences_that_were_jumped_over_have_expired() -> None:
    opened, _ = account()
    opened.resume(100)
    opened.receive(5, 105)
    opened.receive(5, 130)
    opened.add("stored", 10)
    statement = opened.statement()
    assert (statement.begin, statement.end, statement.outcomes) == (100, 130, {"expired": 20, "stored": 10})
    assert faults(statement) == []
    assert faults(statement._replace(end=133)) == ["3 of 33 sequences were neither received nor expired"]


def test_a_reader_of_some_subjects_jumps_over_others() -> None:
    opened, _ = account(whole=False)
    opened.receive(5, 105)
    opened.receive(5, 130)
    opened.add("taken", 10)
    assert opened.statement().outcomes == {"taken": 10}
    assert faults(opened.statement()) == []


def test_a_reader_that_went_back_after_a_setback_adds_up() -> None:
    opened, _ = account()
    opened.receive(50, 50)
    opened.add("stored", 50)
    opened.resume(40)
    opened.receive(20, 60)
    opened.add("stored", 20)
    assert faults(opened.statement()) == []


def test_only_the_last_hour_counts_and_what_waited_before_it_does() -> None:
    opened, clock = account()
    opened.receive(10, 10)
    opened.add("stored", 8)
    for minute in range(1, MINUTES + 30):
        clock.now += 60
        opened.receive(3, 10 + 3 * minute)
        opened.add("stored", 3)
    statement = opened.statement()
    assert (statement.outcomes["stored"], statement.waiting) == (3 * MINUTES, 2)
    assert faults(statement) == []
    opened.add("stored", 2)
    assert faults(opened.statement()) == []
    clock.now += 3 * 3600
    assert faults(opened.statement()) == []


def test_what_waits_for_longer_than_an_hour_still_waits() -> None:
    opened, clock = account()
    opened.receive(10, 10)
    opened.add("stored", 8)
    clock.now += 3600
    statement = opened.statement()
    assert (statement.received, statement.outcomes, statement.waiting) == (2, {}, 2)
    assert faults(statement) == []


def test_a_statement_survives_json_and_what_is_none_is_refused() -> None:
    opened, _ = account()
    opened.receive(1, 1)
    assert ledger.parse(opened.statement()._asdict()) == opened.statement()
    for content in ({}, {"outcomes": 1}, opened.statement()._asdict() | {"received": None}):
        with pytest.raises(ValueError, match="no statement"):
            ledger.parse(content)


def test_a_process_has_one_account_of_each_name() -> None:
    process_ledger = ledger.Ledger()
    assert process_ledger.account("history", "S") is process_ledger.account("history", "S")
    process_ledger.account("history", "T").receive(4, 4)
    assert [statement.received for statement in process_ledger.statements()] == [0, 4]
    assert isinstance(process_ledger.statements()[0], Statement)
