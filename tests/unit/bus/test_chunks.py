"""How the rows of a fold are divided into batches."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from bus.folding.task import OutputRow, chunks
from bus.publishing.batch import Row


@given(st.lists(st.integers(1, 3), max_size=40), st.integers(3, 9))
def test_no_message_is_cut_apart_and_nothing_is_lost(rows: list[int], most: int) -> None:
    outputs = [
        OutputRow(index, Row(f"{index}.{number}", b"")) for index, count in enumerate(rows) for number in range(count)
    ]
    cuts = list(chunks(outputs, most))
    assert [row for _, part in cuts for row in part] == [output.row for output in outputs]
    assert all(0 < len(part) <= most for _, part in cuts)
    lasts = [last for last, _ in cuts]
    assert lasts[-1:] in ([], [None])
    for (last, part), (_, following) in itertools.pairwise(cuts):
        assert last is not None
        assert int(part[-1].subject.split(".")[0]) == last < int(following[0].subject.split(".")[0])
