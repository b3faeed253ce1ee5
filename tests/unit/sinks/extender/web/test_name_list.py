"""Names that stay encoded are the names that a decoder finds, and a table of them finds what a dict finds."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.extender import name_list
from sinks.extender.state import name_table
from sinks.extender.state.rows import Rows
from sinks.extender.web import wire
from sinks.extender.web.selector import Filtered

PLAIN = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), max_size=70)
NAMES = st.lists(
    PLAIN | st.sampled_from(["a", "b", ",", "a,b", "worker-1", "worker-2", "worker-1.example"]), min_size=1
)


def encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.slow
@given(NAMES)
def test_names_are_those_that_a_decoder_finds(names: list[str]) -> None:
    listed = name_list.parse(encoded(names))
    assert listed is not None
    assert list(listed) == names == [listed[index] for index in range(len(names))] == listed[:]
    assert len(listed) == len(names)


@given(NAMES, PLAIN)
def test_a_list_contains_what_is_in_it(names: list[str], other: str) -> None:
    listed = name_list.parse(encoded(names))
    assert listed is not None
    assert all((name in listed) == (name in names) for name in (*names, other, ",", "", '","', "é"))


@given(st.text('[]"\\,a1 \n\x01é', max_size=12))
def test_whatever_is_taken_for_a_list_is_one(text: str) -> None:
    listed = name_list.parse(text.encode())
    if listed is not None:
        assert list(listed) == json.loads(text)


@pytest.mark.slow
@given(st.lists(PLAIN.filter(bool), unique=True, min_size=1), NAMES)
def test_a_table_finds_what_a_dict_finds(present: list[str], asked: list[str]) -> None:
    table = name_table.of(present, range(100, 100 + len(present)))
    listed = name_list.parse(encoded([*asked, *present]))
    assert table is not None
    assert listed is not None
    rows = dict(zip(present, range(100, 100 + len(present)), strict=True))
    assert table.find(listed, -1).tolist() == [rows.get(name, -1) for name in (*asked, *present)]


def test_a_table_of_many_alike_names_finds_each() -> None:
    names = [f"worker-{number:05d}.region-1.example" for number in range(5000)]
    table, listed = name_table.of(names, range(5000)), name_list.of(names[::-1])
    assert table is not None
    assert listed is not None
    assert table.find(listed, -1).tolist() == list(range(5000))[::-1]


def test_rows_of_encoded_names_are_those_of_decoded_ones_while_nodes_come_and_go() -> None:
    rows, names = Rows(), ["n-1", "n-2", "a-much-longer-name.example", "unknown", "n-1"]
    listed = name_list.of(names)
    assert listed is not None
    for change, node in ((rows.row, "n-1"), (rows.row, "a-much-longer-name.example"), (rows.remove, "n-1")):
        change(node)
        assert rows.rows(listed).tolist() == rows.rows(names).tolist()
    rows.row('a name with a "quote"')  # no table takes it
    assert rows.rows(listed).tolist() == rows.rows(names).tolist()


def test_one_name_of_any_length_takes_no_more_memory_than_itself() -> None:
    body = encoded({"Pod": POD, "Nodes": None, "NodeNames": ["a"] * 5_000 + ["b" * 20_000]})
    rows = Rows()
    rows.row("a")
    tracemalloc.start()
    try:
        asked = rows.rows(wire.question(body).names)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(body)
    finally:
        tracemalloc.stop()
    assert set(asked[:-1].tolist()) == {rows.find("a")} != {asked[-1]}


POD = {"metadata": {"name": "p", "uid": "u", "annotations": {"x": '"NodeNames":["y"]}'}}}


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (encoded({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}), ["a", "b"]),
        (
            encoded({"NodeNames": ["z"], "Pod": POD, "Nodes": None, "NodeNames ": 1})[:-1] + b',"NodeNames":["a"]}',
            ["a"],
        ),
        (encoded({"Pod": POD, "Nodes": None, "NodeNames": ["a\\b", "é"]}), ["a\\b", "é"]),
        (encoded({"Pod": POD, "NodeNames": ["a"], "Nodes": None}), ["a"]),
        (encoded({"NodeNames": ["b"], "nodes": None, "Pod": {**POD, "NodeNames": ["c"]}}), ["b"]),
        (encoded({"pod": POD, "nodenames": ["a"]}), ["a"]),
        (encoded({"Pod": POD, "Nodes": None, "NodeNames": []}), []),
    ],
)
def test_the_names_of_a_question_are_those_of_its_top_level(body: bytes, names: list[str]) -> None:
    asked = wire.question(body)
    assert list(asked.names) == names
    assert asked.pod["metadata"] == POD["metadata"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"Pod":{},"Nodes":null,"NodeNames":["a",1]}',
        b'{"Pod":{},"Nodes":null,"NodeNames":["a""b"]}',
        b'{"Pod":{},"Nodes":null,"x\\"NodeNames":["a"]}',
        b'{"Pod":1,"Nodes":null,"NodeNames":["a"]}',
        b'{"Pod":{},,"NodeNames":["a"]}',
        b'["NodeNames":["a"]}',
    ],
)
def test_a_malformed_question_is_refused_as_before(body: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.question(body)


def test_a_reply_in_which_all_nodes_pass_has_the_names_as_they_came() -> None:
    asked = wire.question(encoded({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}))
    reply = wire.filtered(asked, Filtered(asked.names))
    assert reply == wire.filtered(asked, Filtered(["a", "b"]))
    assert json.loads(reply)["NodeNames"] == ["a", "b"]
    some = json.loads(wire.filtered(asked, Filtered(asked.names, unresolvable={"c": "full"})))
    assert some["FailedAndUnresolvableNodes"] == {"c": "full"}
