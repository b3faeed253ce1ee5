"""Rows of container events and pod usage."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, pack
from sinks.history import column
from sinks.history.column import Schema

CONTAINER: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "boottime_us": pl.Int64,
    "boot": pl.String,
    "event": pl.String,
    "container": pl.String,
    "container_name": pl.String,
    "image": pl.String,
    "sandbox": pl.Boolean,
    "pod": pl.String,
    "namespace": pl.String,
    "name": pl.String,
    "workload": pl.String,
    "kind": pl.String,
    "sources": pl.List(pl.String),
}
_EVERY = {"node": pl.String, "at_us": pl.Int64, "boot": pl.String, "seq": pl.Int64, "span_us": pl.Int64}
_TEXTS = ("pod", "namespace", "name", "workload", "kind")
# Numbers of `Packed.numbers`.
_NUMBERS: Schema = {
    "containers": pl.Int64,
    "cpu_cores": pl.Float64,
    "memory_bytes": pl.Float64,
    "cpu_pressure": pl.Float64,
    "memory_pressure": pl.Float64,
    "io_pressure": pl.Float64,
    "throttled": pl.Float64,
    "age": pl.Int64,
}
POD: Schema = {**_EVERY, **dict.fromkeys(_TEXTS[:-1], pl.String), **_NUMBERS, _TEXTS[-1]: pl.String}


class Packed(NamedTuple):
    """What is kept of a block of pod usage.

    Attributes:
        rows: Number of its rows: its pods, and everything outside of them if the block says what that uses.
        texts: Values of each of `_TEXTS`, which blocks of the same pods share; None: of no pod, or of no row.
        numbers: Values of each of `_NUMBERS`, one column after another; NaN: not known.
    """

    node: str
    at_us: int
    boot: str
    seq: int
    span_us: int
    rows: int
    texts: tuple[Sequence[str | None] | None, ...]
    numbers: bytes


def containers(events: Sequence[ContainerEvent]) -> pl.DataFrame:
    """Return one row per event."""
    return column.frame(events, CONTAINER)


def event_identity(event: ContainerEvent) -> tuple[object, ...]:
    """Return a key that only copies of one event share."""
    return event.boot, event.boottime_us, event.container, event.event


def packed(block: PodUsageBlock) -> Packed:
    """Return what is kept of a block."""
    pods, ages = len(block.pods), block.ages
    has_system = block.system_cpu_cores is not None or block.system_memory_bytes is not None
    columns: tuple[tuple[Sequence[float | None], float | None], ...] = (
        (block.containers, math.nan),
        (block.cpu_cores, block.system_cpu_cores),
        (block.memory_bytes, block.system_memory_bytes),
        (block.cpu_pressure, math.nan),
        (block.memory_pressure, math.nan),
        (block.io_pressure, math.nan),
        (block.throttled, math.nan),
        ([math.nan] * pods if ages is None else ages, math.nan),
    )
    numbers: list[float | None] = []
    for of_pods, of_system in columns:
        numbers += of_pods
        if has_system:
            numbers.append(of_system)
    texts = block.pods, block.namespaces, block.names, block.workloads, block.kinds
    head = block.node, block.at_us, block.boot, block.seq, block.span_us
    return Packed(*head, pods + has_system, texts, pack(numbers))


def pods(blocks: Sequence[Packed]) -> pl.DataFrame:
    """Return one row per pod and second, and one with a null pod for processes outside of pods.

    The sum of a second's `cpu_cores` is therefore the node's usage, and a node without pods has rows, too.
    """
    counts = np.array([block.rows for block in blocks], dtype=np.intp)
    block_of = np.repeat(np.arange(len(blocks)), counts)
    heads = pl.DataFrame({name: [getattr(block, name) for block in blocks] for name in _EVERY}, schema=_EVERY)
    columns = {name: _texts(blocks, index) for index, name in enumerate(_TEXTS)} | _numbers(blocks, counts)
    return heads[block_of].hstack(pl.DataFrame(columns)).select(list(POD))


def _texts(blocks: Sequence[Packed], index: int) -> pl.Series:
    """Return a column of texts of all blocks, null where a block has none."""
    values: list[str | None] = []
    for block in blocks:
        own = block.texts[index] or ()
        values += own
        values += [None] * (block.rows - len(own))
    return pl.Series(values, dtype=pl.String)


def _numbers(blocks: Sequence[Packed], counts: NDArray[np.intp]) -> dict[str, pl.Series]:
    """Return the columns of numbers of all blocks."""
    values = np.frombuffer(b"".join([block.numbers for block in blocks]))
    # Rows of all blocks before, times columns, and rows of the own block before.
    ends = np.cumsum(counts)
    before = np.repeat(ends - counts, counts)
    at = before * len(_NUMBERS) + np.arange(len(before)) - before
    width = np.repeat(counts, counts)
    return {
        name: pl.Series(values[at + width * index], nan_to_null=True).cast(kind)
        for index, (name, kind) in enumerate(_NUMBERS.items())
    }


def rows(block: Packed) -> int:
    """Return the number of rows of a block."""
    return block.rows
