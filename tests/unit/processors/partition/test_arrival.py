"""Late, doubled and missing blocks, clocks that jump: what is folded, at which time, and what is counted."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from processors.partition import arrival, clock, migrate
from processors.partition.arrival import SPAN, Arrival
from processors.partition.clock import HELD, STEADY
from processors.partition.output import Output
from processors.partition.partition import FORMAT, Partition
from processors.rows import snapshot
from schemas import codec
from schemas.boot import DIGITS, cut
from schemas.messages.estimate import Availability, Blocks, Model
from schemas.messages.telemetry import SampleBlock, SmoothedBlock
from schemas.settings import Settings, load
from tests.support import telemetry
from tests.support.telemetry import START, block, stored

HOUR = 3600


def configured() -> Settings:
    return load({"estimate_report_seconds": "0.5"}, environ={})  # an availability a block


def rows(outputs: list[Output], node: str = "n") -> list[Availability]:
    return [each.message for each in outputs if isinstance(each.message, Availability) and each.message.node == node]


def fold(messages: list[SampleBlock], partition: Partition | None = None) -> list[Output]:
    return (partition or Partition(configured(), 0)).fold([stored(message) for message in messages])[0]


def block_of(node: str, seq: int, at: float, boot: str = "boot") -> SampleBlock:
    """Return a block of a second of the boot clock with another time of the wall clock."""
    return block(node, 0, seq=seq).model_copy(update={"at_us": round((START + at) * 1e6), "boot": boot})


def seconds(outputs: list[Output], node: str = "n") -> list[float]:
    return [
        each.message.at_us / 1e6 - START
        for each in outputs
        if isinstance(each.message, SmoothedBlock) and each.message.node == node
    ]


# What has come


def test_a_block_that_comes_twice_is_folded_once_and_counted() -> None:
    messages = [block("n", 0), block("n", 1), block("n", 1), block("n", 0), block("n", 2)]
    outputs = fold(messages)
    assert seconds(outputs) == [0, 1, 2]
    assert [row.blocks for row in rows(outputs)] == [None, None, Blocks(doubled=2, late=0, missing=0, jumps=0)]


def test_a_late_block_is_left_out_and_counted_and_no_longer_missing() -> None:
    messages = [block("n", second) for second in (0, 1, 4, 2, 5, 2, 6)]
    outputs = fold(messages)
    assert seconds(outputs) == [0, 1, 4, 5, 6]
    counts = [row.blocks for row in rows(outputs)]
    assert counts[2:] == [
        Blocks(doubled=0, late=0, missing=2, jumps=0),
        Blocks(doubled=0, late=1, missing=1, jumps=0),
        Blocks(doubled=1, late=1, missing=1, jumps=0),
    ]


def test_a_late_block_changes_no_number_of_any_node() -> None:
    order = [block("n", 0, cpu_util=0.2), block("n", 2, cpu_util=0.4), block("n", 3, cpu_util=0.3)]
    late = block("n", 1, cpu_util=1.0, pods=50.0)
    without, with_it = rows(fold(order)), rows(fold([*order[:2], late, *order[2:]]))
    counts = {"blocks"}
    assert [row.model_dump(exclude=counts) for row in with_it] == [row.model_dump(exclude=counts) for row in without]


def test_a_block_of_the_boot_before_is_late_and_does_not_bring_that_boot_back() -> None:
    again = [block_of("n", 12 + second, 30 + second, boot="second") for second in range(2)]
    outputs = fold([block_of("n", 90_000, 0), again[0], block_of("n", 90_001, 1), again[1]])
    assert seconds(outputs) == [0, 30, 31]
    assert rows(outputs)[-1].blocks == Blocks(doubled=0, late=1, missing=0, jumps=0)


def test_another_boot_id_is_another_boot_unless_it_is_the_same_one_cut() -> None:
    whole = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
    assert cut(whole) == cut(whole[:DIGITS]) == whole[:DIGITS]
    assert cut(whole) != cut(f"4{whole[1:]}")
    for left, right in (("recorded-1", "recorded-2"), ("another boot", "another"), ("boot", "boot-2")):
        assert cut(left) != cut(right)


@given(st.lists(st.integers(0, SPAN), max_size=80))
def test_counts_are_those_of_whoever_remembers_everything(later: list[int]) -> None:
    seqs = [0, *later]
    come: Arrival | None = None
    folded: list[int] = []
    seen: set[int] = set()
    doubled = late = 0
    for seq in seqs:
        come, fresh = arrival.update(come, "b", seq)
        assert fresh == (not folded or seq > folded[-1])
        near = not folded or folded[-1] - seq < SPAN
        if fresh:
            folded.append(seq)
        elif near and seq in seen:
            doubled += 1
        else:
            late += 1
        if near:
            seen.add(seq)
    assert come is not None
    assert (come.doubled, come.late) == (doubled, late)
    assert come.missing == folded[-1] - folded[0] + 1 - len([seq for seq in seen if folded[0] <= seq])


# What a forged block, or a second host of the same name, does to it


@pytest.mark.parametrize(
    "forged",
    [
        block_of("n", 2**53 - 1, 20),
        block_of("n", 10**6, 20 + 10**6),
        block_of("n", 1020, 20, boot="x"),
        block_of("n", 2, 0, boot="x"),
    ],
    ids=["last second", "later by days", "another boot", "another boot in the past"],
)
def test_one_forged_block_costs_a_node_two_seconds(forged: SampleBlock) -> None:
    true = [block("n", second) for second in range(60)]
    partition = Partition(configured(), 0)
    outputs = fold([*true[:20], forged, *true[20:23]], partition)
    again = Partition(configured(), 0)
    again.restore(partition.snapshot())
    outputs += fold(true[23:], again)
    times = [row.at_us // 1_000_000 - START for row in rows(outputs)]
    assert times[:20] == list(range(20))
    assert times[-38:] == list(range(22, 60))
    last = rows(outputs)[-1].blocks
    assert last is not None
    assert (last.late, last.doubled, last.missing, last.shared) == (2, 0, 0, None)


def test_a_node_that_begins_with_a_forged_block_is_heard_all_the_same() -> None:
    outputs = fold([block_of("n", 2**53 - 1, 0), *(block("n", second) for second in range(10))])
    assert [row.seq for row in rows(outputs)][1:] == list(range(1002, 1010))


def test_blocks_that_were_folded_are_not_folded_again_however_many_come_in_a_row() -> None:
    true = [block("n", second) for second in range(200)]
    outputs = fold([*true, *true[50:100], block_of("n", 1300, 300)])
    assert [row.seq for row in rows(outputs)] == [*range(1000, 1200), 1300]


def test_a_virtual_machine_that_was_set_back_goes_on_under_its_old_boot() -> None:
    before = [block("n", second) for second in range(300)]
    after = [block_of("n", 1100 + second, 300 + second) for second in range(20)]
    outputs = rows(fold([*before, *after]))
    assert [row.at_us // 1_000_000 - START for row in outputs] == [*range(300), *range(302, 320)]
    assert [row.seq for row in outputs[300:]] == list(range(1102, 1120))


def test_two_hosts_of_one_name_are_told_as_long_as_both_send() -> None:
    first = [block_of("n", 1000 + second, second, boot="one") for second in range(200)]
    two = [block_of("n", 5000 + second, second, boot="two") for second in range(30)]
    both = [each for pair in zip(first, two, strict=False) for each in pair]
    partition = Partition(configured(), 0)
    last = rows(fold(both, partition))[-1].blocks
    assert last is not None
    assert last.shared
    restored = Partition(configured(), 0)
    restored.restore(partition.snapshot())
    assert rows(fold(first[30:33], restored))[-1].seq == 1032
    last = rows(fold(first[33:], restored))[-1].blocks
    assert last is not None
    assert last.shared is None


def test_a_reboot_and_late_blocks_of_the_boot_before_are_no_second_host() -> None:
    first = [block_of("n", 1000 + second, second, boot="one") for second in range(10)]
    again = [block_of("n", 10 + second, 40 + second, boot="two") for second in range(10)]
    outputs = rows(fold([*first[:9], again[0], first[9], *again[1:]]))
    assert outputs[-1].blocks == Blocks(doubled=0, late=1, missing=0, jumps=0)


def test_a_state_that_a_forged_block_has_blinded_is_healed() -> None:
    partition = Partition(configured(), 0)
    fold([*(block("n", second) for second in range(10)), block_of("n", 2**53 - 1, 10)], partition)
    header, arrays = snapshot.unpack(partition.snapshot())
    for arrived, _, _ in header["admission"]["known"].values():
        del arrived[8:]  # as an older program stored it
    again = Partition(configured(), 0)
    again.restore(snapshot.pack(header, arrays))
    assert [row.seq for row in rows(fold([block("n", second) for second in range(10, 15)], again))] == [
        1012,
        1013,
        1014,
    ]


@pytest.mark.parametrize("stored", [["boot", 2**53 - 1], None])
def test_pod_usage_far_ahead_hides_no_later_one(stored: list[object] | None) -> None:
    marks = arrival.Marks()
    if stored is None:
        marks.fresh("n", "boot", 100, None)
        marks.fresh("n", "boot", 2**53 - 1, None)
        assert [marks.fresh("n", "boot", seq, None) for seq in range(101, 105)] == [False, False, True, True]
    marks.load({"n": stored} if stored else marks.dump())
    assert marks.fresh("n", "boot", 105, 104)
    assert not marks.fresh("n", "boot", 105, 104)


# Event seconds


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


def test_a_silent_node_is_forgotten_once_the_partition_has_seen_an_hour_of_its_silence() -> None:
    partition = Partition(configured(), 0)
    fold([block("here", 0), block("silent", 0)], partition)
    fold([block("here", 3 * HOUR + second) for second in range(60)], partition)  # nobody could be heard before
    assert partition.nodes == 2
    fold([block("here", 3 * HOUR + second) for second in range(60, HOUR, 30)], partition)
    assert partition.nodes == 2
    fold([block("here", 4 * HOUR + second) for second in range(0, 180, 30)], partition)
    assert partition.nodes == 1


# Which time is believed


@pytest.mark.parametrize("step", [0.1, -0.1, 0.9, -1.0])
def test_a_small_step_of_the_wall_clock_is_followed_at_once(step: float) -> None:
    outputs = fold([block_of("n", 1000 + second, second + (step if second > 2 else 0)) for second in range(6)])
    assert seconds(outputs) == pytest.approx([0, 1, 2, 3 + step, 4 + step, 5 + step])
    assert all(row.clock is None and row.blocks is None for row in rows(outputs))


def test_a_leap_second_that_is_smeared_over_a_day_and_drift_for_months_are_no_jump() -> None:
    told_us, present = 0, None
    for seq in range(0, 40_000, 7):
        told_us += 7_000_000 + 700  # 100 ppm: 4 s in all
        present = clock.update(present, seq, told_us, 0)
        assert clock.error_us(present) is None
        assert clock.at_of(present, seq, told_us) == told_us


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


# Laws


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.sampled_from([0, 0, 0, 90, -7]), st.booleans()),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=8),
)
@examples(max_examples=60, deadline=None)
def test_how_messages_are_grouped_changes_neither_counts_nor_times(
    reports: list[tuple[str, int, int, bool]], cuts: list[int]
) -> None:
    messages = [block_of(node, 1000 + seq, seq + off, "b" if boot else "c") for node, seq, off, boot in reports]
    whole = [codec.encode(each.message) for each in fold(messages)]
    partition, parts = Partition(configured(), 0), []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(messages)]):
        parts += [codec.encode(each.message) for each in fold(messages[start:end], partition)]
        again = Partition(configured(), 0)
        again.restore(partition.snapshot())
        partition = again
    assert parts == whole


# Older state


def older(partition: Partition) -> bytes:
    """Return a partition's state as format 2 had it."""
    header, arrays = snapshot.unpack(partition.snapshot())
    slots = arrays["classes.label"].shape
    new = ("chain.level.", "classes.rest.", "classes.drift.", "classes.demand.", "classes.starts.")
    fields = ("assumed", "running", "full", "amount", "soaked", "queueing", "reserved", "most")
    gone = {f"chain.{name}" for name in fields} | {f"classes.{name}" for name in ("kind", "most", "held", "pending")}
    arrays = {name: part for name, part in arrays.items() if not name.startswith(new) and name not in gone}
    arrays |= {f"classes.{name}": np.zeros((*slots, 2)) for name in ("weight", "squares", "products", "errors")}
    arrays |= {f"classes.{name}": np.zeros((slots[0], 2)) for name in ("rest", "scatter")}
    arrays["classes.seconds"] = np.zeros(slots[0])
    del header["admission"]["allocatable"]
    present = header["admission"].pop("known")
    header["admission"]["marks"] = {node: come[:2] for node, (come, _, _) in present.items()}
    return snapshot.pack(header | {"format": 2, "watermark": header["watermark"][:2]}, arrays)


def test_state_of_format_2_is_carried_on_and_counts_begin_at_0() -> None:
    messages = [block(node, second, cpu_util=0.3) for second in range(10) for node in "ab"]
    whole = fold(messages)
    before, after = Partition(configured(), 0), Partition(configured(), 0)
    first = fold(messages[:12], before)
    after.restore(older(before))
    assert [codec.encode(each.message) for each in first + fold(messages[12:], after)] == [
        codec.encode(each.message) for each in whole
    ]
    late = rows(fold([block("a", 3), block("a", 12)], after), "a")
    assert late[-1].blocks == Blocks(doubled=1, late=0, missing=2, jumps=0)
    assert json.loads(json.dumps(snapshot.unpack(after.snapshot())[0]))["format"] == FORMAT


def test_every_step_of_migration_leads_to_the_format_after_it() -> None:
    assert set(migrate.STEPS) == set(range(min(migrate.STEPS), FORMAT))


@pytest.mark.parametrize(
    "header", [{"format": 2}, {"format": 2, "admission": {"marks": {"n": 1}}, "watermark": [1, 0]}]
)
def test_a_state_that_is_not_what_its_format_says_is_refused(header: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="damaged"):
        Partition(configured(), 0).restore(snapshot.pack(header, {}))


def test_a_state_of_a_newer_format_is_refused() -> None:
    newer = snapshot.pack({"format": FORMAT + 1}, {})
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}, this version reads {FORMAT}"):
        Partition(configured(), 0).restore(newer)
