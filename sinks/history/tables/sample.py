"""Blocks of samples as rows, raw and smoothed."""

import itertools
import math
import struct
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas import codec, metric
from schemas.messages.telemetry import Block, SampleBlock
from sinks.history.column import Schema

SMOOTHED: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "boot": pl.String,
    "seq": pl.Int64,
    **dict.fromkeys(metric.NAMES, pl.Float64),
}
# The amount of a ratio of 1 on this node, which a replay needs.
SAMPLE: Schema = {**SMOOTHED, "cpus": pl.Int64, "memory_bytes": pl.Int64}

_COLUMN_OF = {name: index for index, name in enumerate(metric.NAMES)}


def samples(blocks: Sequence[SampleBlock]) -> pl.DataFrame:
    """Return one row per sample."""
    sizes = {"cpus": [block.cpus for block in blocks], "memory_bytes": [block.memory_bytes for block in blocks]}
    return _rows(blocks, SAMPLE, sizes)


def smoothed(blocks: Sequence[Block]) -> pl.DataFrame:
    """Return one row per sample."""
    return _rows(blocks, SMOOTHED, {})


def _rows(blocks: Sequence[Block], schema: Schema, beside: dict[str, list[int]]) -> pl.DataFrame:
    """Return one row per sample."""
    counts = np.array([block.samples for block in blocks], dtype=np.intp)
    block_of = np.repeat(np.arange(len(blocks)), counts)
    sample_of = np.arange(len(block_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.array([block.at_us for block in blocks], dtype=np.int64)[block_of]
    steps = np.array([block.step_us for block in blocks], dtype=np.int64)[block_of]
    heads = pl.DataFrame(
        {
            "node": [block.node for block in blocks],
            "boot": [block.boot for block in blocks],
            "seq": [block.seq for block in blocks],
            **beside,
        }
    )
    values = _values(blocks, block_of)
    measured = {name: pl.Series(values[:, index], nan_to_null=True) for index, name in enumerate(metric.NAMES)}
    frame = heads[block_of].with_columns(at_us=begins + sample_of * steps, **measured)
    return frame.select(list(schema)).cast(pl.Schema(schema))


def _values(blocks: Sequence[Block], block_of: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return (samples, metrics) of `metric.NAMES`; NaN: not known."""
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, block in enumerate(blocks):
        alike[tuple(block.metrics)].append(index)
    values = np.full((len(block_of), len(metric.NAMES)), np.nan, order="F")
    for names, indexes in alike.items():
        flat = itertools.chain.from_iterable(blocks[index].values for index in indexes)
        given = np.array(list(flat), dtype=np.float64).reshape(-1, len(names))
        rows = slice(None) if len(alike) == 1 else np.isin(block_of, indexes)
        for column, name in enumerate(names):
            if name in _COLUMN_OF:
                values[rows, _COLUMN_OF[name]] = given[:, column]
    return values


def rows(block: Block) -> int:
    """Return the number of rows of a block."""
    return block.samples


def check(block: Block) -> None:
    """Check that the values are in the ranges of their metrics, as processors do.

    Raises:
        schemas.codec.Refused: One is not.
    """
    low, high = _limits(tuple(block.metrics), block.samples)
    try:
        packed = struct.pack(f"{len(block.values)}d", *block.values)
    except struct.error:
        packed = struct.pack(f"{len(block.values)}d", *(math.nan if each is None else each for each in block.values))
    values = np.frombuffer(packed)
    if np.count_nonzero(values < low) or np.count_nonzero(values > high):
        index = int(np.flatnonzero((values < low) | (values > high))[0])
        raise codec.Refused(metric.out_of_range(block.metrics[index % len(block.metrics)], values[index]))


@lru_cache(maxsize=256)
def _limits(metrics: tuple[str, ...], samples: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and the largest accepted value of each value of a block; metrics of no table have none."""
    low = [0.0 if name in metric.BY_NAME else -np.inf for name in metrics]
    high = [metric.BY_NAME[name].high if name in metric.BY_NAME else np.inf for name in metrics]
    return np.tile(low, samples), np.tile(high, samples)
