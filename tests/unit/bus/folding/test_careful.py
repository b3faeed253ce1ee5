"""A fold that some messages make raise: they are left out, and all else is as if they had never come."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.folding import careful
from bus.folding.careful import Doubt, Doubtful
from bus.folding.task import Fold, OutputRow
from bus.publishing.batch import Row
from bus.reading.progress import Received
from schemas.codec import InvalidMessage


class Totals(Fold):
    """Sums numbers, one row for each; `!` raises after it has spoiled the state, `?` is invalid."""

    def __init__(self) -> None:
        self.total, self.captured = 0, 0

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[OutputRow], Sequence[InvalidMessage]]:
        outputs, invalid = [], []
        for index, (subject, payload) in enumerate(messages):
            if payload == b"?":
                invalid.append(InvalidMessage(index, "a question"))
                continue
            self.total += 1_000_000
            if payload == b"!":
                raise KeyError("exclamation")
            if payload == b"m":
                raise MemoryError
            self.total += int(payload) - 1_000_000
            outputs.append(OutputRow(index, Row(subject, b"%d" % self.total)))
        return outputs, invalid

    def snapshot(self) -> bytes | None:
        return self.capture()

    def capture(self) -> bytes:
        self.captured += 1
        return json.dumps(self.total).encode()

    def clear(self) -> None:
        self.total = 0

    def restore(self, body: bytes) -> None:
        self.total = json.loads(body)


PAYLOADS = st.lists(st.sampled_from([b"!", b"?", b"1", b"2", b"3"]), min_size=1, max_size=40)


def received(payloads: Sequence[bytes], first: int = 1) -> list[Received]:
    return [Received("s", first + number, payload) for number, payload in enumerate(payloads)]


@given(PAYLOADS, st.integers(1, 10))
def test_the_others_are_folded_as_if_the_messages_that_raise_had_never_come(payloads: list[bytes], group: int) -> None:
    plain, state = Totals(), Totals()
    good = [payload for payload in payloads if payload != b"!"]
    expected, _ = plain.fold([("s", payload) for payload in good])
    rows: list[bytes] = []
    refused: list[tuple[int, str]] = []
    for begin in range(0, len(payloads), group):
        outputs, invalid = careful.fold(state, [("s", payload) for payload in payloads[begin : begin + group]])
        assert [output.index for output in outputs] == sorted(output.index for output in outputs)
        rows += [output.row.payload for output in outputs]
        refused += [(begin + each.index, each.reason) for each in invalid]
    assert rows == [output.row.payload for output in expected]
    assert state.total == plain.total
    assert dict(refused) == {
        index: "a question" if payload == b"?" else "the fold raised KeyError: 'exclamation'"
        for index, payload in enumerate(payloads)
        if payload in (b"?", b"!")
    }


def test_many_messages_in_a_row_that_raise_need_the_bytes_of_the_state_once() -> None:
    state = Totals()
    careful.fold(state, [("s", b"1"), *[("s", b"!")] * 64])
    assert state.captured <= 10


def test_what_says_something_of_the_machine_is_no_messages_fault() -> None:
    with pytest.raises(MemoryError):
        careful.fold(Totals(), [("s", b"1"), ("s", b"m")])


def test_a_doubt_reaches_back_to_the_first_message_that_raised() -> None:
    doubt, state = Doubt(), Totals()
    assert len(doubt.fold(state, received([b"1", b"2"]))[0]) == 2
    assert state.captured == 0
    with pytest.raises(Doubtful, match=r"messages 3 to 5: KeyError"):
        doubt.fold(state, received([b"1", b"!", b"1"], 3))
    doubt._until = 0.0  # long ago
    fresh = Totals()
    for part in (received([b"1", b"2", b"1"]), received([b"!", b"1"], 4)):
        rows, _ = doubt.fold(fresh, part)
        assert rows
    assert fresh.total == 5
    with pytest.raises(Doubtful):
        doubt.fold(fresh, received([b"!"], 100))
