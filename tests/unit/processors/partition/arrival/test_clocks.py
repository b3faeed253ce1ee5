"""Nodes whose wall clock jumps, drifts or is wrong, and nodes that fall silent."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from processors.partition import clock
from processors.partition.clock import FAR_US, HELD, STEADY, Clock
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Blocks, Model
from schemas.messages.telemetry import SampleBlock
from tests.support.processors import telemetry
from tests.support.processors.telemetry import START, block, stored
from tests.unit.processors.partition.arrival.rows import block_of, configured, fold, rows, seconds

HOUR = 3600


@pytest.mark.slow
def test_one_node_with_blocks_of_the_future_does_not_stop_the_sums_of_others() -> None:
    messages: list[SampleBlock] = []
    for second in range(100):
        messages += [block("a", second), block("b", second)]
        far = range(3 * second, 3 * second + 3)
        messages += [block_of("liar", 5000 + each, 10_000_000 + each) for each in far]
    sums = [each.message for each in fold(messages) if isinstance(each.message, Model)]
    assert [model.at_us // 1_000_000 - START for model in sums] == list(range(99))
    assert {model.nodes for model in sums} == {2}


def test_a_node_that_is_left_alone_after_a_pause_is_followed_within_a_minute_of_its_blocks() -> None:
    messages = [block(node, second) for second in range(3) for node in "ab"]
    messages += [block("a", HOUR + second) for second in range(80)]
    sums = [each.message for each in fold(messages) if isinstance(each.message, Model)]
    assert sums[-1].at_us // 1_000_000 - START == HOUR + 78


def test_what_fell_out_of_the_stream_while_nobody_folded_is_counted_for_each_node() -> None:
    """Processors come back two hours later, and the stream has kept one hour; nobody is forgotten meanwhile."""
    nodes = [f"n{index}" for index in range(5)]
    before, after = Partition(configured(), 0), Partition(configured(), 0)
    fold([block(node, second) for second in range(3) for node in nodes], before)
    after.restore(before.snapshot())
    outputs = fold([block(node, HOUR + second) for second in range(3) for node in nodes], after)
    for node in nodes:
        counts = rows(outputs, node)[-1].blocks
        assert counts is not None
        assert counts.missing == HOUR - 3


@pytest.mark.slow
def test_a_silent_node_is_forgotten_once_the_partition_has_seen_an_hour_of_its_silence() -> None:
    partition = Partition(configured(), 0)
    fold([block("here", 0), block("silent", 0)], partition)
    fold([block("here", 3 * HOUR + second) for second in range(60)], partition)  # nobody could be heard before
    assert partition.nodes == 2
    fold([block("here", 3 * HOUR + second) for second in range(60, HOUR, 30)], partition)
    assert partition.nodes == 2
    fold([block("here", 4 * HOUR + second) for second in range(0, 180, 30)], partition)
    assert partition.nodes == 1


@pytest.mark.parametrize("step", [0.1, -0.1, 0.9, -1.0])
def test_a_small_step_of_the_wall_clock_is_followed_at_once(step: float) -> None:
    outputs = fold([block_of("n", 1000 + second, second + (step if second > 2 else 0)) for second in range(6)])
    assert seconds(outputs) == pytest.approx([0, 1, 2, 3 + step, 4 + step, 5 + step])
    assert all(row.clock is None and row.blocks is None for row in rows(outputs))


def test_a_leap_second_that_is_smeared_over_a_day_and_drift_for_months_are_no_jump() -> None:
    reported_us, present = 0, None
    for seq in range(0, 40_000, 7):
        reported_us += 7_000_000 + 700  # 100 ppm: 4 s in all
        present = clock.update(present, seq, reported_us, 0)
        assert clock.error_us(present) is None
        assert clock.at_of(present, seq, reported_us) == reported_us


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-HOUR, -5, 5, 10_000_000])
def test_after_a_jump_time_is_carried_on_and_the_clock_is_believed_once_it_has_held_for_a_minute(jump: int) -> None:
    outputs = fold(
        [block_of("n", 1000 + second, second + (jump if second >= 3 else 0)) for second in range(3 + HELD + 2)]
    )
    carried, believed = seconds(outputs)[: 3 + HELD - 1], seconds(outputs)[3 + HELD - 1 :]
    assert carried == list(range(3 + HELD - 1))
    assert believed == [second + jump for second in range(3 + HELD - 1, 3 + HELD + 2)]
    flagged = rows(outputs)
    assert [row.clock for row in flagged[:3]] == [None] * 3
    assert {row.clock for row in flagged[3 : 3 + HELD - 1]} == {jump}
    assert {row.blocks.jumps for row in flagged[3:] if row.blocks} == {1}
    if abs(jump) < 60:
        assert flagged[-1].clock is None


@pytest.mark.slow
def test_a_clock_that_jumps_there_and_back_is_never_believed() -> None:
    outputs = fold([block_of("n", second, second + (second // 20 % 2) * HOUR) for second in range(200)])
    assert seconds(outputs) == list(range(200))
    assert rows(outputs)[-1].clock == HOUR
    assert rows(outputs)[-1].blocks == Blocks(doubled=0, late=0, missing=0, jumps=5)


def test_a_node_whose_clock_has_jumped_stays_in_the_sums_and_moves_nobody_elses_second() -> None:
    messages = []
    for second in range(20):
        messages += [block("good", second), block_of("n", 1000 + second, second + (10_000_000 if second > 5 else 0))]
    sums = [each.message for each in fold(messages) if isinstance(each.message, Model)]
    assert [model.at_us // 1_000_000 - START for model in sums] == list(range(19))
    assert {model.nodes for model in sums[1:]} == {2}


def test_a_clock_that_was_wrong_from_the_start_is_flagged_by_its_distance_and_left_out_of_the_sums() -> None:
    messages = []
    for second in range(STEADY + 20):
        messages += [block("good", second), block_of("n", 1000 + second, second - HOUR)]
    outputs = fold(messages)
    assert [row.clock for row in rows(outputs)][STEADY - 1 :] == [-HOUR] * 21
    assert all(row.clock is None for row in [*rows(outputs, "good"), *rows(outputs)[: STEADY - 1]])
    assert {each.message.nodes for each in outputs if isinstance(each.message, Model)} == {1}


@pytest.mark.parametrize("ahead", [29, 30, 31, 45, 59, -31, -45, -58])
def test_a_clock_that_is_less_than_a_minute_off_takes_no_node_out_of_the_sums(ahead: int) -> None:
    messages = []
    for second in range(60):
        messages += [block_of("n", 1000 + second, second + ahead), *(block(node, second) for node in "abcd")]
    sums = [each.message for each in fold(messages) if isinstance(each.message, Model)]
    assert len(sums) >= 58
    assert {model.nodes for model in sums[1:]} == {5}


def test_a_node_that_falls_silent_beside_a_clock_that_is_ahead_leaves_the_sums() -> None:
    messages = []
    for second in range(60):
        messages += [block_of("n", 1000 + second, second + 45), *(block(node, second) for node in "abc")]
        messages += [block("silent", second)] if second < 10 else []
    sums = [each.message.nodes for each in fold(messages) if isinstance(each.message, Model)]
    assert (sums[20], sums[45]) == (5, 4)


@pytest.mark.slow
def test_a_node_that_sends_what_it_had_to_keep_is_not_taken_for_one_with_a_wrong_clock() -> None:
    messages = [block("good", second) for second in range(600, 610)]
    for second in range(590):
        messages += [block("n", second), block("good", 610 + second // 2)] if second % 2 else [block("n", second)]
    outputs = fold(messages)
    assert len(rows(outputs)) == 590
    assert all(row.clock is None for row in rows(outputs))


def test_nothing_is_flagged_after_a_suspended_machine_wakes() -> None:
    outputs = fold([block("n", second) for second in (0, 1, 2, 7 * HOUR, 7 * HOUR + 1, 7 * HOUR + 2, 7 * HOUR + 3)])
    assert all(row.clock is None for row in rows(outputs))


@pytest.mark.slow
def test_pods_are_learned_at_the_time_that_is_believed_of_their_node() -> None:
    pods = [{"pod": "u", "workloads": "w", "cpu_cores": 0.5, "memory_bytes": 2e8}]
    good, wrong = Partition(configured(), 0), Partition(configured(), 0)
    for second in range(30):
        off = 10_000_000 if second > 5 else 0
        usage = telemetry.usage("n", second, pods)
        good.fold([stored(block("n", second, cpu_util=0.2, pods=1.0)), stored(usage)])
        moved = block("n", second, cpu_util=0.2, pods=1.0)
        moved = moved.model_copy(update={"at_us": moved.at_us + off * 1_000_000})
        usage = usage.model_copy(update={"at_us": usage.at_us + off * 1_000_000})
        wrong.fold([stored(moved), stored(usage)])
    (expected,), (result,) = (rows(fold([block("n", 30, pods=1.0)], partition)) for partition in (good, wrong))
    assert expected.classes
    assert result.classes == expected.classes


@pytest.mark.parametrize("seq", [2**53 - 1, 10**12])
def test_no_second_that_the_schema_takes_stops_a_fold(seq: int) -> None:
    outputs = fold([block("n", 0), block_of("n", seq, 1), block("good", 1), block_of("n", seq, 2)])
    for output in outputs:
        codec.decode(type(output.message), codec.encode(output.message))
    assert rows(outputs, "good")


CLOCKS = st.builds(
    Clock,
    offset_us=st.integers(-2000, 2000),
    reported_us=st.integers(-2000, 2000),
    held=st.sampled_from((0, 0, 0, 1)),
    apart_us=st.integers(-2000, 2000),
    steady=st.sampled_from((0, 0, 0, 1)),
)


@given(CLOCKS, st.integers(1, 1000), st.integers(-3000, 3000), st.sampled_from((0, 1, 59, 60, 61, 3600)))
@example(Clock(0), 100, 0, 1)
def test_a_clock_that_is_still_is_left_as_it_is_and_its_time_counts(
    before: Clock, seq: int, off_us: int, ahead: int
) -> None:
    """The short way of nearly every block gives what the long one gives."""
    at_us, second = seq * 1_000_000 + off_us, ahead and seq + ahead
    if clock.is_still(before, seq, at_us, second):
        assert clock.update(before, seq, at_us, second) == before
        assert clock.at_of(before, seq, at_us) == at_us
    else:
        far = abs(at_us - second * 1_000_000) > FAR_US
        assert not second or before.held or before.steady or far or clock.update(before, seq, at_us, second) != before
