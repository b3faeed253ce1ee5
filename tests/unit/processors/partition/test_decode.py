"""Payloads to arrays: whatever columns come, in whatever company, a block is what it says."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors import decode
from processors.decode import Block
from schemas import codec, metric
from schemas.messages.telemetry import SampleBlock
from tests.support.processors.telemetry import METRICS, NAMES, block, stored


def of(node: str, columns: list[str], rows: list[list[float | None]]) -> SampleBlock:
    values = [value for row in rows for value in row]
    return block(node, 0).model_copy(update={"metrics": columns, "values": values})


def decoded(messages: list[SampleBlock]) -> list[Block]:
    items, refused = decode.messages([stored(message) for message in messages], NAMES.model)
    assert not refused
    return [item for item in items if isinstance(item, Block)]


@st.composite
def blocks(draw: st.DrawFn) -> SampleBlock:
    columns = draw(st.one_of(st.permutations(METRICS), st.lists(st.sampled_from(METRICS), min_size=1, unique=True)))
    number = st.one_of(st.none(), st.floats(0, 1), st.integers(0, 1))
    row = st.lists(number, min_size=len(columns), max_size=len(columns))
    return of("n", columns, draw(st.lists(row, min_size=1, max_size=3)))


@pytest.mark.slow
@given(st.lists(blocks(), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_every_number_lands_in_the_column_of_its_metric_whatever_was_decoded_with_it(sent: list[SampleBlock]) -> None:
    for message, result in zip(sent, decoded(sent), strict=True):
        (values,) = decode.samples([result])
        assert result.message.samples == message.samples
        for row, wanted in enumerate(np.array(message.values, dtype=np.float64).reshape(message.samples, -1)):
            present = dict(zip(message.metrics, wanted, strict=True))
            assert np.array_equal(values[row], [present.get(name, np.nan) for name in metric.NAMES], equal_nan=True)


def test_blocks_that_were_decoded_apart_are_stacked_like_those_that_came_together() -> None:
    sent = [block(f"n{index}", 0, cpu_util=index / 10) for index in range(4)]
    apart = [result for message in sent for result in decoded([message])]
    assert np.array_equal(decode.samples(apart), decode.samples(decoded(sent)))


def test_what_is_refused_keeps_its_place_whether_it_is_no_json_or_out_of_range() -> None:
    good, high = stored(block("n", 0)), stored(block("n", 0, cpu_util=1.5))
    garbage = (NAMES.part(0, "samples", "n"), b"garbage")
    items, refused = decode.messages([good, high, garbage, good, garbage, high], NAMES.model)
    assert len(items) == 2
    assert [index for index, _ in refused] == [1, 2, 4, 5]
    assert ["cpu_util is 1.5" in reason for _, reason in refused] == [True, False, False, True]


@pytest.mark.parametrize("value", [-0.1, 1.5, 1.0000001])
def test_one_number_out_of_range_refuses_its_block_and_no_other(value: float) -> None:
    sent = [block(f"n{index}", 0, cpu_util=0.5) for index in range(5)]
    values = [*sent[3].values[:-15], value, *sent[3].values[-14:]]
    sent[3] = sent[3].model_copy(update={"values": values})
    items, refused = decode.messages([stored(message) for message in sent], NAMES.model)
    ((index, reason),) = refused
    assert index == 3
    assert f" is {value}; it is a ratio from 0 to 1" in reason
    assert [item.message.node for item in items if isinstance(item, Block)] == ["n0", "n1", "n2", "n4"]
    assert codec.decode(SampleBlock, stored(sent[3])[1]) == sent[3]


def test_what_another_fold_has_decoded_is_taken_once_and_only_for_its_own_subject() -> None:
    memo = decode.Memo()
    sent = [stored(block("n", 0, cpu_util=0.25)), stored(block("m", 0, cpu_util=0.5))]
    first, _ = decode.messages(sent, NAMES.model, leave=memo)
    payload = sent[0][1]
    assert memo.take(NAMES.part(0, "samples", "m"), payload) is None
    second, refused = decode.messages(sent, NAMES.model, take=memo)
    assert not refused
    assert memo.take(*sent[0]) is None
    for ours, theirs in zip(first, second, strict=True):
        assert isinstance(ours, Block)
        assert isinstance(theirs, Block)
        assert ours.message == theirs.message
        assert np.array_equal(decode.samples([ours]), decode.samples([theirs]), equal_nan=True)


def test_what_the_later_fold_has_passed_is_forgotten() -> None:
    sent = [stored(block(f"n{index}", 0)) for index in range(4)]
    memo = decode.Memo()
    decode.messages(sent[:1], NAMES.model, take=memo)  # the later fold reads the first message before the earlier one
    decode.messages(sent, NAMES.model, leave=memo)
    assert memo.take(*sent[2]) is not None
    assert [memo.take(*message) is None for message in sent] == [True, True, True, False]


def test_when_too_many_bytes_wait_nothing_is_kept_until_the_later_fold_asks_again() -> None:
    sent = [stored(block(f"n{index}", 0)) for index in range(4)]
    memo = decode.Memo(max_bytes=sum(len(payload) for _, payload in sent[:2]))
    decode.messages(sent, NAMES.model, leave=memo)
    assert [memo.take(*message) is None for message in sent] == [True, True, True, True]
    decode.messages(sent[2:], NAMES.model, leave=memo)
    assert [memo.take(*message) is None for message in sent] == [True, True, False, False]


def test_a_payload_out_of_range_is_refused_by_the_fold_that_takes_it_too() -> None:
    memo, high = decode.Memo(), stored(block("n", 0, cpu_util=1.5))
    _, refused = decode.messages([high], NAMES.model, leave=memo)
    assert len(refused) == 1
    assert decode.messages([high], NAMES.model, take=memo) == ([], refused)


def test_names_of_strangers_that_are_refused_leave_hardly_anything_behind() -> None:
    def refused(begin: int) -> None:
        for number in range(begin, begin + 200):
            payload = codec.encode(block(f"{'😀' * 245}{number:06}", 0))
            assert decode.messages([(NAMES.part(0, "samples", "n"), payload)], NAMES.model)[1]

    refused(0)
    tracemalloc.start()
    refused(200)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 200_000
