"""Column types of the tables, and the default conversion of messages: each field is the column of its name."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schemas.messages.base import Message

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

# Maps in Parquet, so that DuckDB answers `labels['zone']` and `allocatable['cpu']`.
TEXTS = pl.Map(pl.String, pl.String)
AMOUNTS = pl.Map(pl.String, pl.Float64)


def frame(messages: Sequence[Message], schema: Schema, **derived: Sequence[Any]) -> pl.DataFrame:
    """Return one row per message; `derived` has the columns that are not fields of the message."""
    columns: dict[str, Sequence[Any]] = {
        name: derived[name] if name in derived else [getattr(message, name) for message in messages] for name in schema
    }
    return pl.DataFrame(columns, schema=schema)
