"""Messages as columns: lists of structs, maps, and many messages in chunks."""

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from sinks.history import chunk, column
from sinks.history import table as tables
from sinks.history.chunk import Chunks
from sinks.history.tables import sample
from tests.support.processors.telemetry import block

SCORES = pl.List(pl.Struct({"strategy": pl.String, "score": pl.Float64}))
RANKED = pl.List(pl.Struct({"node": pl.String, "scores": SCORES, "needs": pl.List(pl.String)}))


@pytest.mark.parametrize(
    ("kind", "values", "rows"),
    [
        (column.AMOUNTS, [{"cpu": 1.5, "memory": 2.0}, None, {}, {"cpu": 3.0}], None),
        (column.TEXTS, [None, None], None),
        (column.TEXTS, [], None),
        (SCORES, [[("a", 1.0), ("b", None)], None, [], [("a", 2.0)]], "strategy score"),
        (SCORES, [[("a", 1.0)], [("a", 2.0)]], "strategy score"),
        (SCORES, [[], []], "strategy score"),
    ],
)
def test_lists_and_maps_are_what_polars_makes_of_dictionaries(kind: Any, values: list[Any], rows: str | None) -> None:
    made = column.frame([], {"column": kind}, column=values)["column"]
    if rows is None:
        expected = values
    else:
        expected = [each and [dict(zip(rows.split(), row, strict=True)) for row in each] for each in values]
    assert made.dtype == kind
    assert made.to_list() == pl.Series(expected, dtype=kind).to_list()


def test_lists_within_lists() -> None:
    values = [[("n1", [("a", 1.0), ("b", 2.0)], []), ("n2", [], ["x", "y"])], [], [("n3", [("a", 3.0)], ["z"])]]
    made = column.frame([], {"column": RANKED}, column=values)["column"].to_list()
    scores = [{"strategy": "a", "score": 1.0}, {"strategy": "b", "score": 2.0}]
    assert made[0] == [{"node": "n1", "scores": scores, "needs": []}, {"node": "n2", "scores": [], "needs": ["x", "y"]}]
    assert made[1:] == [[], [{"node": "n3", "scores": [{"strategy": "a", "score": 3.0}], "needs": ["z"]}]]


def test_fields_of_messages_are_columns_of_their_names() -> None:
    messages: list[Any] = [SimpleNamespace(node="n1", needs=["a"]), SimpleNamespace(node="n2", needs=None)]
    frame = column.frame(messages, {"node": pl.String, "needs": pl.List(pl.String), "more": pl.Int64}, more=[1, 2])
    assert frame.rows() == [("n1", ["a"], 1), ("n2", None, 2)]


def test_chunks_keep_the_order_and_the_sequence_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "_MESSAGES", 3)
    table = next(each for each in tables.TABLES if each.name == "samples")
    blocks = [sample.raw(block("n", seq, cpu_util=seq / 10)) for seq in range(1, 9)]
    chunks = Chunks(table)
    for sequence, each in enumerate(blocks, 11):
        chunks.append(each, sequence, table.rows(each))
    frame = chunks.frame()
    assert frame.drop("sequence").equals(table.frame(blocks))
    assert frame["sequence"].to_list() == [
        number for number, each in enumerate(blocks, 11) for _ in range(each.samples)
    ]
    assert chunks.frame().equals(frame)
