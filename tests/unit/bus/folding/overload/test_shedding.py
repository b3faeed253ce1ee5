"""What is left out when a machine cannot keep up: nothing while it catches up, then predictions, then older blocks."""

import asyncio

import pytest

from bus.accounting.ledger import Ledger
from bus.folding.overload import thinning
from bus.folding.overload.shedding import BLOCKS, NONE, PREDICTIONS, Shedding
from bus.folding.overload.thinning import Thinning
from bus.health import Health
from bus.reading.progress import Received

SUBJECTS = ("spazio.part.0.>",)
BLOCK, FACTS = "spazio.part.0.samples.n{}", "spazio.part.0.podfacts.n{}"


class Process:
    """A process whose tasks are behind."""

    def __init__(self) -> None:
        self.now, self.health, self.reconnects = 1.0, Health(), 0
        self.shedding = Shedding(("samples",), lambda: self.now, lambda: self.reconnects)

    def run(self, seconds: int, behind: float, gain: float = 0.0, *, patient: bool = False) -> int:
        for second in range(seconds):
            self.now += 1
            self.shedding.observe("0", max(0.0, behind - gain * second), self.health, patient=patient)
        return self.shedding.level


def read(*subjects: str) -> list[Received]:
    return [Received(subject, index + 1, b"", (index + 1) * 1_000_000) for index, subject in enumerate(subjects)]


def test_a_task_that_catches_up_leaves_nothing_out_however_far_it_is_behind() -> None:
    process = Process()
    assert process.run(120, 300.0, gain=2.5) == NONE
    assert not process.health.problems


def test_what_is_left_out_is_logged_as_a_warning_since_the_process_does_what_it_should(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Process().run(30, 12.0)
    assert [(record.message, record.levelname) for record in caplog.records] == [("service.degraded", "WARNING")] * 2


def test_a_task_that_stays_behind_sheds_predictions_first_and_then_blocks_and_all_comes_back() -> None:
    process = Process()
    assert process.run(60, 2.0) == NONE
    assert process.run(6, 10.0) == PREDICTIONS
    assert "predictions" in process.health.problems["overload"]
    assert "add cores" in process.health.problems["overload"]
    assert process.run(6, 12.0) == BLOCKS
    assert "newest block" in process.health.problems["overload"]
    assert process.run(22, 0.5) == PREDICTIONS
    assert process.run(22, 0.5) == NONE
    assert not process.health.problems


def test_while_a_processor_catches_up_after_an_outage_of_the_server_its_machine_is_not_blamed() -> None:
    process = Process()
    process.run(30, 0.5)
    process.reconnects = 1
    process.run(10, 2.0)
    assert process.run(6, 47.0, patient=True) == PREDICTIONS
    assert process.health.problems["overload"].endswith("catches up after an outage of the NATS server")
    assert process.run(15, 0.0, patient=True) == PREDICTIONS  # it has caught up, and waits before it takes that back
    assert process.health.problems["overload"].endswith("catches up after an outage of the NATS server")
    process.run(120, 60.0, patient=True)
    assert "add cores" in process.health.problems["overload"]  # it has had its time to


def test_what_comes_after_a_processor_has_caught_up_is_no_outage() -> None:
    process = Process()
    process.reconnects = 1
    process.run(5, 20.0, gain=5.0)
    process.run(10, 0.5)
    assert process.run(6, 12.0) == PREDICTIONS
    assert "add cores" in process.health.problems["overload"]


def test_a_server_that_returns_during_an_overload_is_not_its_cause() -> None:
    process = Process()
    assert process.run(6, 10.0) == PREDICTIONS
    process.reconnects = 1
    process.run(6, 12.0)
    assert "add cores" in process.health.problems["overload"]


def test_blocks_are_left_out_as_long_as_there_are_many_to_leave_out() -> None:
    process = Process()
    process.run(20, 10.0)
    for _ in range(5):
        process.shedding.count(50, 50)
        assert process.run(22, 0.5) == BLOCKS
    process.shedding.count(99, 1)
    assert process.run(22, 0.5) == PREDICTIONS


def test_what_falls_behind_soon_after_a_step_was_taken_back_is_left_out_again_at_once() -> None:
    process = Process()
    process.run(20, 10.0)
    assert process.run(21, 0.5) == PREDICTIONS
    assert process.run(2, 1.5) == BLOCKS
    process.run(21, 0.5)
    assert process.run(2, 0.9) == PREDICTIONS  # what a busy processor that keeps up collects
    assert process.run(5, 3.0, gain=0.5) == PREDICTIONS  # catches up
    process.run(21, 0.5)
    assert process.run(30, 0.5) == NONE
    assert process.run(4, 1.5) == NONE  # the trial is over


def test_predictions_that_stay_behind_never_cost_availability_a_block() -> None:
    assert Process().run(200, 60.0, patient=True) == PREDICTIONS


def test_facts_and_the_last_message_are_always_folded_and_of_blocks_the_newest() -> None:
    process = Process()
    messages = read(
        BLOCK.format(1), FACTS.format(1), BLOCK.format(2), BLOCK.format(1), FACTS.format(2), BLOCK.format(1)
    )
    assert process.shedding.kept("0", messages, patient=False) == messages
    process.run(20, 10.0)
    assert [message.sequence for message in process.shedding.kept("0", messages, patient=False)] == [2, 3, 5, 6]
    batches = [process.shedding.kept("0", messages, patient=True) for _ in range(4)]
    assert [[message.sequence for message in batch] for batch in batches] == [[2, 5, 6]] * 3 + [[1, 2, 3, 4, 5, 6]]


def test_a_task_that_went_to_another_replica_does_not_hold_the_level() -> None:
    process = Process()
    process.run(20, 10.0)
    process.shedding.observe("1", 9.0, process.health, patient=False)
    process.shedding.end("0", process.health)
    assert process.shedding.level == BLOCKS
    for _ in range(90):
        process.now += 1
        process.shedding.observe("1", 0.1, process.health, patient=False)
    assert process.shedding.level == NONE


def test_a_replica_that_has_no_task_any_more_is_well_and_begins_the_next_one_afresh() -> None:
    process = Process()
    process.run(20, 10.0)
    assert process.health.problems
    process.shedding.end("0", process.health)
    assert process.shedding.level == NONE
    assert not process.health.problems


def test_patient_tasks_rest_while_one_of_availability_is_behind() -> None:
    process = Process()
    process.run(1, 3.0)
    process.run(1, 60.0, patient=True)
    assert process.shedding.in_time.is_set()
    process.run(1, 3.5)
    assert not process.shedding.in_time.is_set()
    process.run(1, 1.0)
    assert process.shedding.in_time.is_set()
    process.run(1, 3.5)
    process.shedding.end("0", process.health)
    assert process.shedding.in_time.is_set()


async def test_a_rest_ends_when_others_have_caught_up_or_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    account = Ledger().account("process", "S")
    patient = Thinning(process.shedding, "outlook-0", process.health, account, patient=True, subjects=SUBJECTS)
    process.run(1, 60.0)
    resting = asyncio.create_task(patient.rest())
    await asyncio.sleep(0.01)
    assert not resting.done()
    process.run(1, 0.0)
    await resting
    process.run(1, 60.0)
    monkeypatch.setattr(thinning, "_RESTED_SECONDS", 0.01)
    await patient.rest()


async def test_one_task_of_availability_reads_and_folds_at_a_time_while_blocks_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process, messages = Process(), read(BLOCK.format(1))

    def task(name: str) -> Thinning:
        account = Ledger().account("process", "S")
        return Thinning(process.shedding, name, process.health, account, patient=False, subjects=SUBJECTS)

    async with task("0").turn(messages), task("1").turn(messages):
        assert not process.shedding.turn.locked()
    process.run(20, 10.0)
    async with task("0").turn(messages) as first:
        async with task("1").turn([]):  # has nothing to fold
            pass
        waiting = asyncio.create_task(process.shedding.turn.acquire())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await first.aclose()
        await waiting
    monkeypatch.setattr(thinning, "_TURN_SECONDS", 0.01)
    async with task("1").turn(messages):  # the other one does not get on
        assert process.shedding.turn.locked()
