"""Blocks of samples as rows, raw and smoothed."""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

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


class Packed(NamedTuple):
    """What is kept of a block: its fields, its number of samples, and its values packed, row by row.

    Smoothed blocks have no sizes.
    """

    node: str
    boot: str
    seq: int
    at_us: int
    step_us: int
    cpus: int | None
    memory_bytes: int | None
    metrics: tuple[str, ...]
    samples: int
    values: bytes


def raw(block: SampleBlock) -> Packed:
    """Return what is kept of a block.

    Raises:
        schemas.codec.Refused: A value is out of the range of its metric, as processors see it.
    """
    packed = _packed(block, block.cpus, block.memory_bytes)
    low, high = _limits(packed.metrics, packed.samples)
    values = np.frombuffer(packed.values)
    if np.count_nonzero(values < low) or np.count_nonzero(values > high):
        index = int(np.flatnonzero((values < low) | (values > high))[0])
        raise codec.Refused(metric.out_of_range(packed.metrics[index % len(packed.metrics)], values[index]))
    return packed


def smoothed(block: Block) -> Packed:
    """Return what is kept of a block."""
    return _packed(block, None, None)


def _packed(block: Block, cpus: int | None, memory_bytes: int | None) -> Packed:
    head = block.node, block.boot, block.seq, block.at_us, block.step_us
    return Packed(*head, cpus, memory_bytes, tuple(block.metrics), block.samples, block.packed())


def raw_rows(blocks: Sequence[Packed]) -> pl.DataFrame:
    """Return one row per sample, with the sizes of its node."""
    sizes = {"cpus": [block.cpus for block in blocks], "memory_bytes": [block.memory_bytes for block in blocks]}
    return _rows(blocks, SAMPLE, sizes)


def smoothed_rows(blocks: Sequence[Packed]) -> pl.DataFrame:
    """Return one row per sample."""
    return _rows(blocks, SMOOTHED, {})


def _rows(blocks: Sequence[Packed], schema: Schema, beside: dict[str, list[int | None]]) -> pl.DataFrame:
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


def _values(blocks: Sequence[Packed], block_of: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return (samples, metrics) of `metric.NAMES`; NaN: not known."""
    alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, block in enumerate(blocks):
        alike[block.metrics].append(index)
    values = np.full((len(block_of), len(metric.NAMES)), np.nan, order="F")
    for names, indexes in alike.items():
        given = np.frombuffer(b"".join([blocks[index].values for index in indexes])).reshape(-1, len(names))
        rows = slice(None) if len(alike) == 1 else np.isin(block_of, indexes)
        for column, name in enumerate(names):
            if name in _COLUMN_OF:
                values[rows, _COLUMN_OF[name]] = given[:, column]
    return values


def rows(block: Packed) -> int:
    """Return the number of rows of a block."""
    return block.samples


@lru_cache(maxsize=256)
def _limits(metrics: tuple[str, ...], samples: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and the largest accepted value of each value of a block; metrics of no table have none."""
    low = [0.0 if name in metric.BY_NAME else -np.inf for name in metrics]
    high = [metric.BY_NAME[name].high if name in metric.BY_NAME else np.inf for name in metrics]
    return np.tile(low, samples), np.tile(high, samples)
