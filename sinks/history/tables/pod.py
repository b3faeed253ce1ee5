"""Rows of container events and pod usage."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from schemas.messages.telemetry import ContainerEvent, PodUsageBlock
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
# Columns of `pods` that a block has as lists, by the name of the list.
_LISTED = {
    "pods": ("pod", pl.String),
    "namespaces": ("namespace", pl.String),
    "names": ("name", pl.String),
    "workloads": ("workload", pl.String),
    "containers": ("containers", pl.Int64),
    "cpu_cores": ("cpu_cores", pl.Float64),
    "memory_bytes": ("memory_bytes", pl.Float64),
    "cpu_pressure": ("cpu_pressure", pl.Float64),
    "memory_pressure": ("memory_pressure", pl.Float64),
    "io_pressure": ("io_pressure", pl.Float64),
    "throttled": ("throttled", pl.Float64),
    "ages": ("age", pl.Int64),
    "kinds": ("kind", pl.String),
}
# What a block says of everything outside pods, by the name of the list of pods.
_BESIDE = {"cpu_cores": "system_cpu_cores", "memory_bytes": "system_memory_bytes"}
_EVERY = {"node": pl.String, "at_us": pl.Int64, "boot": pl.String, "seq": pl.Int64, "span_us": pl.Int64}
POD: Schema = {**_EVERY, **dict(_LISTED.values())}


def containers(events: Sequence[ContainerEvent]) -> pl.DataFrame:
    """Return one row per event."""
    return column.frame(events, CONTAINER)


def event_identity(event: ContainerEvent) -> tuple[object, ...]:
    """Return a key that only copies of one event share."""
    return event.boot, event.boottime_us, event.container, event.event


def pods(blocks: Sequence[PodUsageBlock]) -> pl.DataFrame:
    """Return one row per pod and second, and one with a null pod for processes outside of pods.

    The sum of a second's `cpu_cores` is therefore the node's usage, and a node without pods has rows, too.
    """
    counts = np.array([rows(block) for block in blocks], dtype=np.intp)
    block_of = np.repeat(np.arange(len(blocks)), counts)
    heads = pl.DataFrame({name: [getattr(block, name) for block in blocks] for name in _EVERY}, schema=_EVERY)
    listed = {name: _chained(blocks, column) for column, (name, _) in _LISTED.items()}
    return heads[block_of].hstack(pl.DataFrame(listed, schema=dict(_LISTED.values())))


def _chained(blocks: Sequence[PodUsageBlock], name: str) -> list[Any]:
    """Return a column of all blocks, each with what it says of everything outside pods behind its pods.

    A column that a block leaves out has no values.
    """
    beside = _BESIDE.get(name)
    values: list[Any] = []
    for block in blocks:
        column = getattr(block, name)
        values += [None] * len(block.pods) if column is None else column
        if _has_system(block):
            values.append(None if beside is None else getattr(block, beside))
    return values


def _has_system(block: PodUsageBlock) -> bool:
    return block.system_cpu_cores is not None or block.system_memory_bytes is not None


def rows(block: PodUsageBlock) -> int:
    """Return the number of rows of a block."""
    return len(block.pods) + _has_system(block)
