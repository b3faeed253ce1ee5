"""Late, doubled and missing blocks, clocks that jump: what is folded, at which time, and what is counted."""

import itertools

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from processors.partition import arrival
from processors.partition.arrival import SPAN, Arrival
from processors.partition.partition import Partition
from processors.rows import snapshot
from schemas import codec
from schemas.boot import DIGITS, cut
from schemas.messages.estimate import Blocks
from schemas.messages.telemetry import SampleBlock
from tests.support.processors.telemetry import START, block
from tests.unit.processors.partition.arrival.rows import block_of, configured, fold, rows, seconds


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
def test_counts_are_those_of_a_reader_that_remembers_everything(later: list[int]) -> None:
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_blocks_that_were_folded_are_not_folded_again_however_many_come_in_a_row() -> None:
    true = [block("n", second) for second in range(200)]
    outputs = fold([*true, *true[50:100], block_of("n", 1300, 300)])
    assert [row.seq for row in rows(outputs)] == [*range(1000, 1200), 1300]


@pytest.mark.slow
def test_a_virtual_machine_that_was_set_back_goes_on_under_its_old_boot() -> None:
    before = [block("n", second) for second in range(300)]
    after = [block_of("n", 1100 + second, 300 + second) for second in range(20)]
    outputs = rows(fold([*before, *after]))
    assert [row.at_us // 1_000_000 - START for row in outputs] == [*range(300), *range(302, 320)]
    assert [row.seq for row in outputs[300:]] == list(range(1102, 1120))


@pytest.mark.slow
def test_two_hosts_of_one_name_are_reported_as_long_as_both_send() -> None:
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
