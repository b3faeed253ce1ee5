"""The tables of the history: which messages they hold, and how messages become columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from schemas import metric
from schemas.estimate import Availability, Model
from schemas.message import Message
from schemas.section import FEATURES
from schemas.telemetry import Block, SampleBlock, SmoothedBlock

Columns = Mapping[str, Sequence[Any]]
Schema = Mapping[str, pl.DataType | type[pl.DataType]]


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: Name of its folder and of its view.
        message: Kind of message that it holds.
        schema: Columns of its files.
        frame: Turns messages into a frame of that schema.
        rows: Number of rows that a message makes.
        by_node: The last token of the subject is the node of the message.
    """

    name: str
    message: type[Message]
    schema: Schema
    frame: Callable[[Sequence[Any]], pl.DataFrame]
    rows: Callable[[Any], int] = lambda _: 1
    by_node: bool = True


_SAMPLE: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "boot": pl.String,
    "seq": pl.Int64,
    **dict.fromkeys(metric.NAMES, pl.Float64),
}
_AVAILABILITY: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "seq": pl.Int64,
    **dict.fromkeys(("available", "lower", "upper", "signal", "cost", "capacity"), pl.Float64),
    "pods": pl.Int64,
    "binding": pl.String,
    "mode": pl.String,
    "churn": pl.Boolean,
    **dict.fromkeys(("prior", "explained", "gap"), pl.Float64),
    "since_us": pl.Int64,
    **dict.fromkeys((f"usage_{feature}" for feature in FEATURES), pl.Float64),
}
_MODEL: Schema = {
    "scope": pl.String,
    "node": pl.String,
    "partition": pl.Int64,
    "at_us": pl.Int64,
    "features": pl.List(pl.String),
    "moment": pl.List(pl.Float64),
    "nodes": pl.Int64,
    "pods": pl.Float64,
    "cost": pl.List(pl.Float64),
}


def _samples(blocks: Sequence[Block]) -> pl.DataFrame:
    """Return one row per sample: lists per block first, since taking them apart is then one vectorised step."""
    listed = pl.List(pl.Float64)
    columns: dict[str, list[Any]] = {name: [] for name in ("at_us", *metric.NAMES)}
    for block in blocks:
        width, samples = len(block.metrics), block.samples
        columns["at_us"].append([block.at_us + index * block.step_us for index in range(samples)])
        known = {name: block.values[index::width] for index, name in enumerate(block.metrics)}
        for name in metric.NAMES:
            columns[name].append(known.get(name) or [None] * samples)
    frame = pl.DataFrame(
        {
            "node": [block.node for block in blocks],
            "boot": [block.boot for block in blocks],
            "seq": [block.seq for block in blocks],
            **columns,
        },
        schema_overrides={"at_us": pl.List(pl.Int64), **dict.fromkeys(metric.NAMES, listed)},
    )
    return frame.explode(["at_us", *metric.NAMES]).select(list(_SAMPLE))


def _availabilities(messages: Sequence[Availability]) -> pl.DataFrame:
    plain = [name for name in _AVAILABILITY if not name.startswith("usage_")]
    columns: dict[str, list[Any]] = {name: [getattr(message, name) for message in messages] for name in plain}
    columns |= {f"usage_{feature}": [message.usage.get(feature) for message in messages] for feature in FEATURES}
    return pl.DataFrame(columns, schema=_AVAILABILITY)


def _models(messages: Sequence[Model]) -> pl.DataFrame:
    return pl.DataFrame({name: [getattr(message, name) for message in messages] for name in _MODEL}, schema=_MODEL)


def _block_rows(block: Block) -> int:
    return block.samples


TABLES: tuple[Table, ...] = (
    Table("samples", SampleBlock, _SAMPLE, _samples, _block_rows),
    Table("smoothed", SmoothedBlock, _SAMPLE, _samples, _block_rows),
    Table("availability", Availability, _AVAILABILITY, _availabilities),
    Table("models", Model, _MODEL, _models, by_node=False),
)
_BY_KIND = {"samples": TABLES[0], "smoothed": TABLES[1], "availability": TABLES[2], "model": TABLES[3]}


def of_subject(subject: str) -> Table | None:
    """Return the table of a message by the subject that it is stored under; None: it has none.

    >>> of_subject("spazio.part.3.samples.n1").name, of_subject("spazio.model").name, of_subject("spazio.pods.n1")
    ('samples', 'models', None)
    """
    tokens = subject.split(".")
    kind = tokens[3] if tokens[1] == "part" and len(tokens) > 3 else tokens[1]
    return _BY_KIND.get(kind)
