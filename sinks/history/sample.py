"""Blocks of samples as rows, raw and smoothed."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from schemas import metric
from schemas.telemetry import Block, SampleBlock
from sinks.history.column import Schema

SMOOTHED: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "boot": pl.String,
    "seq": pl.Int64,
    **dict.fromkeys(metric.NAMES, pl.Float64),
}
# What a ratio of 1 is on this node; without it a recording could not be replayed.
SAMPLE: Schema = {**SMOOTHED, "cpus": pl.Int64, "memory_bytes": pl.Int64}


def samples(blocks: Sequence[SampleBlock]) -> pl.DataFrame:
    """Return one row per sample."""
    sizes = {"cpus": [block.cpus for block in blocks], "memory_bytes": [block.memory_bytes for block in blocks]}
    return _rows(blocks, SAMPLE, sizes)


def smoothed(blocks: Sequence[Block]) -> pl.DataFrame:
    """Return one row per sample."""
    return _rows(blocks, SMOOTHED, {})


def _rows(blocks: Sequence[Block], schema: Schema, beside: dict[str, list[int]]) -> pl.DataFrame:
    """Return one row per sample: lists per block first, since taking them apart is then one vectorised step."""
    listed = pl.List(pl.Float64)
    columns: dict[str, list[Any]] = {name: [] for name in ("at_us", *metric.NAMES)}
    for block in blocks:
        width, count = len(block.metrics), block.samples
        columns["at_us"].append([block.at_us + index * block.step_us for index in range(count)])
        known = {name: block.values[index::width] for index, name in enumerate(block.metrics)}
        for name in metric.NAMES:
            columns[name].append(known.get(name) or [None] * count)
    frame = pl.DataFrame(
        {
            "node": [block.node for block in blocks],
            "boot": [block.boot for block in blocks],
            "seq": [block.seq for block in blocks],
            **beside,
            **columns,
        },
        schema_overrides={**schema, "at_us": pl.List(pl.Int64), **dict.fromkeys(metric.NAMES, listed)},
    )
    return frame.explode(["at_us", *metric.NAMES]).select(list(schema))


def rows(block: Block) -> int:
    """Return how many rows a block makes."""
    return block.samples
