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
    assert [row for _, part, _ in cuts for row in part] == [output.row for output in outputs]
    assert all(0 < len(part) <= most and not partial for _, part, partial in cuts)
    lasts = [last for last, _, _ in cuts]
    assert lasts[-1:] in ([], [None])
    for (last, part, _), (_, following, _) in itertools.pairwise(cuts):
        assert last is not None
        assert int(part[-1].subject.split(".")[0]) == last < int(following[0].subject.split(".")[0])


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=9), max_size=12),
    st.integers(1, 6),
    st.integers(1, 120),
    st.integers(0, 5),
)
def test_a_message_of_too_many_rows_or_bytes_is_stored_in_parts_that_say_how_much_of_it_is_there(
    messages: list[list[int]], most: int, most_bytes: int, stored: int
) -> None:
    outputs = [OutputRow(index, Row(f"{index}", bytes(size))) for index, sizes in enumerate(messages) for size in sizes]
    done: dict[int, int] = {0: stored} if messages else {}
    for last, rows, partial in chunks(outputs, most, most_bytes, stored=stored):
        assert 0 < len(rows) <= most
        assert len(rows) == 1 or sum(len(row.payload) for row in rows) <= most_bytes
        for row in rows:
            done[int(row.subject)] = done.get(int(row.subject), 0) + 1
        if partial:
            assert last is not None
            assert done[last] == partial
            assert {row.subject for row in rows} == {str(last)}
        elif last is not None:
            whole = len(messages[last]) + (stored if last == 0 else 0)
            assert done[last] == whole
    assert done == {index: len(sizes) + (stored if index == 0 else 0) for index, sizes in enumerate(messages)}
