"""Column types of the tables, and the default conversion of messages: each field is the column of its name.

Lists of structs and maps are built of flat columns: polars takes ten times as long for a dictionary per entry.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from polars.datatypes import DataTypeClass

from schemas.messages.base import Message

Kind = DataTypeClass | pl.DataType
Schema = Mapping[str, Kind]

# Maps in Parquet, so that DuckDB answers `labels['zone']` and `allocatable['cpu']`.
TEXTS = pl.Map(pl.String, pl.String)
AMOUNTS = pl.Map(pl.String, pl.Float64)


def frame(messages: Sequence[Message], schema: Schema, **derived: Sequence[Any]) -> pl.DataFrame:
    """Return one row per message.

    Args:
        messages: They have a field of each column's name.
        schema: Names and types.
        derived: The columns that are not fields of the message; an entry of a list of structs is a tuple of its fields.
    """
    return pl.DataFrame(
        {
            name: _series(derived[name] if name in derived else [getattr(message, name) for message in messages], kind)
            for name, kind in schema.items()
        }
    )


def _series(values: Sequence[Any], kind: Kind) -> pl.Series:
    if isinstance(kind, pl.Map):
        entry = pl.Struct({"key": kind.key, "value": kind.value})
        return _lists([None if value is None else value.items() for value in values], entry).cast(kind)
    if isinstance(kind, pl.List) and isinstance(kind.inner, pl.Struct):
        return _lists(values, kind.inner)
    return pl.Series(values, dtype=kind)


def _lists(lists: Sequence[Collection[Sequence[Any]] | None], form: pl.Struct) -> pl.Series:
    """Return lists of structs, from lists of tuples; None stays null."""
    flat = list(chain.from_iterable(each for each in lists if each is not None))
    fields = [
        (field.name, _series([entry[index] for entry in flat], field.dtype)) for index, field in enumerate(form.fields)
    ]
    counts = np.array([0 if each is None else len(each) for each in lists], dtype=np.intp)
    entries = pl.DataFrame(
        {"list": np.repeat(np.arange(len(lists)), counts), "entry": pl.DataFrame(dict(fields)).to_struct()}
    )
    filled = entries.group_by("list", maintain_order=True).agg("entry")["entry"]
    if len(filled) == len(lists):
        return filled
    empty, null = len(filled), len(filled) + 1
    places = np.where(counts > 0, np.cumsum(counts > 0) - 1, empty)
    places[[index for index, each in enumerate(lists) if each is None]] = null
    return pl.concat([filled, pl.Series([[], None], dtype=filled.dtype)]).to_frame()[places].to_series()
