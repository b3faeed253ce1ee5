"""Rows in order of time to blocks of samples.

A block is the rows of one node with one `boot` and `seq`; a trace without them gets blocks of one second of its
clock. A block is whole when its node has gone on to the next one, or when the recording is a second past it.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from producers.recorded.prepare import Prepared
from schemas.messages.base import VERSION
from schemas.messages.telemetry import MAXIMUM_SAMPLES, MAXIMUM_US

_SECOND_US = 1_000_000
_KEY = ("node", "boot", "seq")


class Block(NamedTuple):
    """A block as it is published.

    Attributes:
        place: Its place in the recording; as good as any that grows, and comparable with that of other messages.
        node, boot, seq, at_us: As in the message.
        end_us: End of its last sample.
        samples: Number of samples.
        text: The message behind `at_us`.
    """

    place: int

    node: str
    boot: str
    seq: int
    at_us: int
    end_us: int
    samples: int
    text: str

    def payload(self, shift_us: int) -> bytes:
        """Return the message, so much later than it was recorded."""
        head = f'{{"v":{VERSION},"node":{json.dumps(self.node)},"boot":{json.dumps(self.boot)},"seq":{self.seq},'
        return f'{head}"at_us":{self.at_us + shift_us},{self.text}'.encode()


class Unusable(ValueError):
    """Rows that make no block; the message says why, and how to mend it."""


def unsized(node: str) -> Unusable:
    """Return the error of a node of which no size is known."""
    return Unusable(
        f"the recording does not say how many cores and bytes of memory node {node} has: "
        "say it with --cpus and --memory-bytes, or map the columns cpus and memory_bytes"
    )


def read(prepared: Prepared, *, cpus: int, memory_bytes: int, step_seconds: float, rows: int) -> Iterator[Block]:
    """Yield blocks in order of their end, as far as they do not reach back by more than a second.

    Args:
        prepared: Samples in order of time.
        cpus: Cores of a node whose rows do not say; 0: that is a fault.
        memory_bytes: The same of its memory.
        step_seconds: Time between samples where a block has one only.
        rows: Rows to look at at once.

    Raises:
        Unusable: A size is neither in the recording nor given, or a second has too many samples.
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
    """Tell which rows are of a block that may go on behind the last row."""
    if prepared.exact:
        return pl.col("place") == pl.col("place").last()
    newest = pl.struct("boot", "seq").last().over("node") == pl.struct("boot", "seq")
    return newest & (pl.col("at_us").max().over(*_KEY) > last_us - _SECOND_US)


def _keyed(prepared: Prepared) -> pl.LazyFrame:
    second = pl.col("at_us") // _SECOND_US
    return pl.scan_parquet(prepared.path).with_columns(
        boot=pl.col("boot").fill_null("recorded"), seq=pl.col("seq").fill_null(second)
    )


class _Maker:
    def __init__(self, metrics: list[str], cpus: int, memory_bytes: int, step_us: int) -> None:
        self._metrics, self._cpus, self._memory, self._step_us = metrics, cpus, memory_bytes, step_us
        self._names = json.dumps(metrics)

    def make(self, frame: pl.DataFrame) -> list[Block]:
        """Return the blocks of rows that are whole, in order of their end."""
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
        for node, boot, seq, at_us, last_us, samples, cpus, memory, place in groups.iter_rows():
            if samples > MAXIMUM_SAMPLES:
                raise Unusable(
                    f"node {node} has {samples} samples in second {seq}; a block has at most {MAXIMUM_SAMPLES}"
                )
            blocks.append(
                self._block(place, node, boot, seq, at_us, last_us, values[start : start + samples], cpus, memory)
            )
            start += samples
        blocks.sort(key=lambda block: block.place)
        return blocks

    def _block(
        self,
        place: int | None,
        node: str,
        boot: str,
        seq: int,
        at_us: int,
        last_us: int,
        values: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
        cpus: int | None,
        memory: int | None,
    ) -> Block:
        samples = len(values)
        step_us = (last_us - at_us) // (samples - 1) if samples > 1 else self._step_us
        step_us = min(max(step_us, 1), MAXIMUM_US // samples)
        cpus, memory = cpus or self._cpus, memory or self._memory
        if not cpus or not memory:
            raise unsized(node)
        numbers = json.dumps(values.ravel().tolist()).replace("NaN", "null")
        text = f'"step_us":{step_us},"cpus":{cpus},"memory_bytes":{memory},"metrics":{self._names},"values":{numbers}}}'
        end_us = at_us + samples * step_us
        return Block(end_us if place is None else place, node, boot, seq, at_us, end_us, samples, text)
