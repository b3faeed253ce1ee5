"""Rows of container events and pod usage."""

from collections.abc import Sequence
from typing import Any

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
}
_EVERY = {"node": pl.String, "at_us": pl.Int64, "boot": pl.String, "seq": pl.Int64, "span_us": pl.Int64}
POD: Schema = {**_EVERY, **dict(_LISTED.values()), "age": pl.Int64, "kind": pl.String}


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
    columns: dict[str, list[Any]] = {name: [] for name in POD}
    for block in blocks:
        count = rows(block)
        for name in _EVERY:
            columns[name] += [getattr(block, name)] * count
        system = {"cpu_cores": block.system_cpu_cores, "memory_bytes": block.system_memory_bytes}
        for listed, (name, _) in _LISTED.items():
            columns[name] += getattr(block, listed)
            if count > len(block.pods):
                columns[name].append(system.get(name))
        for name, values in (("age", block.ages), ("kind", block.kinds)):
            columns[name] += values or [None] * len(block.pods)
            columns[name] += [None] * (count - len(block.pods))
    return pl.DataFrame(columns, schema=POD)


def rows(block: PodUsageBlock) -> int:
    """Return the number of rows of a block."""
    system = block.system_cpu_cores is not None or block.system_memory_bytes is not None
    return len(block.pods) + system
