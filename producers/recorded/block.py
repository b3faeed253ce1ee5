"""Group rows in order of time into blocks of samples.

A block has the rows of one node with the same `boot` and `seq`; rows of a trace without them form blocks of one second
of its clock. A block is complete when its node continues with the next one, or when the recording is a second past it.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from producers.recorded.prepare import Prepared
from schemas.messages.base import VERSION
from schemas.messages.telemetry import MAXIMUM_SAMPLES, MAXIMUM_US

_SECOND_US = 1_000_000
_KEY = ("node", "boot", "seq")


class Block(NamedTuple):
    """A block as the replay publishes it.

    Attributes:
        position: Sort key that grows in the order of the recording, comparable with that of other messages.
        node, boot, seq, at_us: As in the message.
        end_us: End of its last sample.
        samples: Number of samples.
        text: The JSON text after `at_us`.
    """

    position: int

    node: str
    boot: str
    seq: int
    at_us: int
    end_us: int
    samples: int
    text: str

    def payload(self, shift_us: int) -> bytes:
        """Return the message, with its time moved later by `shift_us`."""
        head = f'{{"v":{VERSION},"node":{json.dumps(self.node)},"boot":{json.dumps(self.boot)},"seq":{self.seq},'
        return f'{head}"at_us":{self.at_us + shift_us},{self.text}'.encode()


class Unusable(ValueError):
    """Rows that form no block; the message has the reason and the remedy."""


def unsized(node: str) -> Unusable:
    """Return the error for a node of unknown size."""
    return Unusable(
        f"the size of node {node} is not in the recording: "
        "give them with --cpus and --memory-bytes, or map the columns cpus and memory_bytes"
    )


def read(prepared: Prepared, *, cpus: int, memory_bytes: int, step_seconds: float, rows: int) -> Iterator[Block]:
    """Yield blocks in order of their end, unless they reach back by more than a second.

    Args:
        prepared: Samples in order of time.
        cpus: Cores of a node whose rows do not contain them; 0: that is an error.
        memory_bytes: Memory of such a node, likewise.
        step_seconds: Time between samples for blocks of one sample.
        rows: Rows to process at once.

    Raises:
        Unusable: A node's size is neither in the recording nor given, or a second has too many samples.
    """
    maker = _Maker(prepared.metrics, cpus, memory_bytes, round(step_seconds * _SECOND_US))
    scan, held = _keyed(prepared), pl.DataFrame()
    for start in range(0, prepared.rows, rows):
        frame = scan.slice(start, rows).collect()
        last_us = int(frame["at_us"][-1])
        frame = frame if held.is_empty() else pl.concat([held, frame])
        over = start + rows >= prepared.rows
        split = frame.with_columns(held=_unfinished(prepared, last_us) & (not over))
        held = split.filter("held").drop("held")
        yield from maker.make(split.filter(~pl.col("held")))


def _unfinished(prepared: Prepared, last_us: int) -> pl.Expr:
    """Return which rows belong to a block that may continue after the last row."""
    if prepared.exact:
        return pl.col("place") == pl.col("place").last()
    newest = pl.struct("boot", "seq").last().over("node") == pl.struct("boot", "seq")
    return newest & (pl.col("at_us").max().over(*_KEY) > last_us - _SECOND_US)


def _keyed(prepared: Prepared) -> pl.LazyFrame:
    second = pl.col("at_us") // _SECOND_US
    return pl.scan_parquet(prepared.path).with_columns(
        boot=pl.col("boot").fill_null("recorded"), seq=pl.col("seq").fill_null(second)
    )


class _Group(NamedTuple):
    """The rows of one block: its key, the times of its first and last row, and its node's size where rows have it."""

    node: str
    boot: str
    seq: int
    at_us: int
    last_us: int
    samples: int
    cpus: int | None
    memory_bytes: int | None
    position: int | None


class _Maker:
    def __init__(self, metrics: list[str], cpus: int, memory_bytes: int, step_us: int) -> None:
        self._metrics, self._cpus, self._memory, self._step_us = metrics, cpus, memory_bytes, step_us
        self._names = json.dumps(metrics)

    def make(self, frame: pl.DataFrame) -> list[Block]:
        """Return the blocks of complete rows, in order of their end."""
        if frame.is_empty():
            return []
        frame = frame.sort(*_KEY, "at_us")
        groups = frame.group_by(*_KEY, maintain_order=True).agg(
            pl.col("at_us").first(),
            pl.col("at_us").last().alias("last_us"),
            pl.len().alias("samples"),
            pl.col("cpus").last(),
            pl.col("memory_bytes").last(),
            pl.col("place").first(),
        )
        values = frame.select(self._metrics).to_numpy().astype(np.float64)
        blocks, start = [], 0
        for group in map(_Group._make, groups.iter_rows()):
            if group.samples > MAXIMUM_SAMPLES:
                raise Unusable(
                    f"node {group.node} has {group.samples} samples in second {group.seq}; "
                    f"a block has at most {MAXIMUM_SAMPLES}"
                )
            blocks.append(self._block(group, values[start : start + group.samples]))
            start += group.samples
        blocks.sort(key=lambda block: block.position)
        return blocks

    def _block(self, group: _Group, values: NDArray[np.float64]) -> Block:
        """Return the block of a group.

        Args:
            group: The group.
            values: (samples, metrics).
        """
        samples = group.samples
        step_us = (group.last_us - group.at_us) // (samples - 1) if samples > 1 else self._step_us
        step_us = min(max(step_us, 1), MAXIMUM_US // samples)
        cpus, memory = group.cpus or self._cpus, group.memory_bytes or self._memory
        if not cpus or not memory:
            raise unsized(group.node)
        numbers = json.dumps(values.ravel().tolist()).replace("NaN", "null")
        text = f'"step_us":{step_us},"cpus":{cpus},"memory_bytes":{memory},"metrics":{self._names},"values":{numbers}}}'
        end_us = group.at_us + samples * step_us
        position = end_us if group.position is None else group.position
        return Block(position, group.node, group.boot, group.seq, group.at_us, end_us, samples, text)
