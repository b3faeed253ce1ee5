"""Laws of the predictions: grouping and restarts change nothing, damaged states and bad input harm nobody."""

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from processors.prediction.fold import PredictionPartition
from processors.rows.roster import Roster
from schemas.messages.base import Message
from schemas.messages.prediction import Prediction, Reject
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, block, stored
from tests.unit.processors.prediction.fold.recordings import (
    BEGIN,
    FAST,
    Stream,
    calm,
    configured,
    lines,
    of,
    predictions,
    recording,
)


@functools.cache
def undisturbed(seed: int, pace: int) -> list[tuple[str, bytes]]:
    """Return what the recording gives when it is folded at once."""
    return lines(PredictionPartition(configured(**FAST), 0).fold(recording(seed, pace)))


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("seed", range(3))
def test_seconds_that_list_the_same_pods_are_worth_the_same_together_and_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folded() -> tuple[list[tuple[str, bytes]], bytes]:
        partition = PredictionPartition(configured(**FAST), 0)
        return lines(partition.fold(recording(seed, 1))), partition.snapshot()

    together = folded()
    monkeypatch.setattr(Roster, "lists", lambda *_: False)
    assert folded() == together


@pytest.mark.slow
@given(
    seed=st.integers(0, 5),
    pace=st.sampled_from([1, 80]),
    cuts=st.lists(st.integers(0, 600), max_size=40),
    restarts=st.lists(st.integers(0, 600), max_size=4),
)
@hypothesis(max_examples=7, deadline=None)
def test_neither_ticks_nor_restarts_change_a_byte(seed: int, pace: int, cuts: list[int], restarts: list[int]) -> None:
    wanted = configured(**FAST)
    messages = recording(seed, pace)
    whole = undisturbed(seed, pace)
    partition, parts = PredictionPartition(wanted, 0), []
    edges = sorted({0, *cuts, *restarts, len(messages)})
    for start, end in itertools.pairwise(edges):
        if start in restarts:
            body = partition.snapshot()
            partition = PredictionPartition(wanted, 0)
            partition.restore(body)
            assert partition.snapshot() == body
        parts += lines(partition.fold(messages[start:end]))
    assert parts == whole
    assert {line[0].split(".")[1] for line in whole} == {"prediction", "reject", "workloads"}


@pytest.mark.slow
@pytest.mark.parametrize("pace", [1, 80])
def test_every_message_alone_gives_what_all_together_give(pace: int) -> None:
    wanted = configured(**FAST)
    messages = recording(7, pace)
    partition = PredictionPartition(wanted, 0)
    alone = [line for message in messages for line in lines(partition.fold([message]))]
    assert alone == undisturbed(7, pace)


@pytest.mark.slow
def test_the_recording_of_these_laws_shows_everything() -> None:
    messages = [
        predicted
        for model in ("calibrated", "n_sigma")
        for predicted in predictions(
            PredictionPartition(configured(**FAST, predict_model=model), 0).fold(recording(1, 1))
        )
    ]
    assert {group for predicted in messages for group in predicted.peaks} == {
        "node",
        "prod",
        "mid",
        "batch",
        "free",
        "none",
        "system",
    }
    assert {predicted.reason for predicted in messages} == {"report", "change", "force"}
    assert any(predicted.accuracy for predicted in messages)
    assert any(predicted.unpredicted.cpu for predicted in messages)
    assert len({predicted.capacity.cpu for predicted in messages}) > 3


@pytest.mark.slow
def test_outputs_say_which_message_they_came_of_in_the_order_of_the_stream() -> None:
    messages = recording(2, 1)
    outputs = PredictionPartition(configured(**FAST), 0).fold([(NAMES.part(0, "samples", "n"), b"garbage"), *messages])
    places = [output.index for output in outputs]
    assert places == sorted(places)
    of_nodes = [output for output in outputs if "workloads" not in output.subject]
    assert all(messages[output.index - 1][0].endswith(output.subject.rsplit(".", 1)[-1]) for output in of_nodes)


def test_a_node_is_predicted_the_same_alone_as_among_others_until_something_was_learned_of_all() -> None:
    mine = calm("mine", range(70))
    others = [calm(f"other-{number}", range(70), cpu=0.1 * number) for number in range(4)]
    mixed = [message for group in zip(*others, mine, strict=True) for message in group]
    assert of("mine", PredictionPartition(configured(), 0).fold(mixed)) == of(
        "mine", PredictionPartition(configured(), 0).fold(mine)
    )


def test_rejects_come_at_least_every_four_seconds_once_a_window_is_full() -> None:
    outputs = PredictionPartition(configured(), 0).fold(calm("n", range(60)))
    messages = [output.message for output in outputs if isinstance(output.message, Reject)]
    gaps = {(after.at_us - before.at_us) // 1_000_000 for before, after in itertools.pairwise(messages)}
    assert gaps == {4}
    assert not any(each.reject for each in messages)


@pytest.mark.parametrize(("section", "form"), [("predict", Prediction), ("reject", Reject)])
def test_what_is_not_enabled_is_not_reported(section: str, form: type[Message]) -> None:
    messages = calm("n", range(70))
    assert any(isinstance(predicted.message, form) for predicted in PredictionPartition(configured(), 0).fold(messages))
    without = PredictionPartition(configured(**{f"{section}_enabled": "false"}), 0).fold(messages)
    assert not any(isinstance(predicted.message, form) for predicted in without)
    assert without


@pytest.mark.slow
def test_nothing_of_pods_piles_up_where_nobody_forecasts() -> None:
    sizes = []
    partition = PredictionPartition(configured(**FAST, forecast_enabled="false"), 0)
    for begin in (0, 200, 400):
        for second in range(begin, begin + 200):
            partition.fold([stored(telemetry.usage("n", BEGIN + second, [{"pod": f"p{second}"}], seq=second))])
            partition.fold([stored(block("n", BEGIN + second, seq=second))])
        sizes.append(len(partition.snapshot()))
    assert sizes[2] < 1.2 * sizes[1]


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["cpu_util", "memory_util"])
def test_one_resource_is_enough_and_nothing_of_the_other_is_given_away(missing: str) -> None:
    messages: Stream = []
    for second in range(BEGIN, BEGIN + 100):
        share = 0.3 + 0.01 * (second % 7)
        usage = {name: None if name == missing else share for name in ("cpu_util", "memory_util")}
        messages.append(stored(block("a", second, samples=10, seq=None, **usage)))
    made = predictions(PredictionPartition(configured(**FAST, predict_violation="0.5"), 0).fold(messages))
    assert made
    last = made[-1]
    present, unknown = ("memory", "cpu") if missing == "cpu_util" else ("cpu", "memory")
    assert 0 < getattr(last.peak, present) < getattr(last.capacity, present)
    assert getattr(last.peak, unknown) == getattr(last.capacity, unknown)
    assert getattr(last.reclaimable, unknown) == 0
    assert (made[0].assumed, last.assumed) == (["cpu", "memory"], [unknown])
    assert last.violation == 0.5
    assert last.accuracy
    assert last.accuracy["calibrated"].settled > 0
