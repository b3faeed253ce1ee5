"""Availabilities of a day, a row for each node and second, made as columns: as messages they would take hours.

Numbers move as those of a fold do, and have as many digits: noise with a memory of ten seconds on CPU and disk, slow
walks of memory, learned costs and bounds, pods that come and go once in some minutes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.messages.estimate import Availability, ClassRoom
from sinks.history.table import TABLES
from sinks.history.tables import estimate

Array = NDArray[np.float64]

_SECOND_US = 1_000_000
_CLASSES = ("shop/web", "shop/api", "data/ingest", "batch/report")
TABLE = next(table for table in TABLES if table.name == "availability")
# Deviation of each series, and what remains of a deviation after a second; 1: it walks.
_MOVES = {
    "cpu": (0.01, 0.9),
    "disk": (0.003, 0.9),
    "io_pressure": (0.002, 0.9),
    "memory": (2e-5, 1.0),
    "cost": (1e-5, 1.0),
    "width": (1e-4, 1.0),
    "explained": (1e-4, 1.0),
}


class _Nodes(NamedTuple):
    """What of the nodes does not change; (nodes,)."""

    phase_us: NDArray[np.int64]
    cpu: Array
    memory: Array
    cost: Array
    memory_cost: Array


class Day:
    """The availabilities of some nodes from a time on."""

    def __init__(self, nodes: int, start_us: int, seed: int = 1) -> None:
        """Draw the nodes; the day begins at `start_us`."""
        self._random = np.random.default_rng(seed)
        self._start_us, self._second = start_us, 0
        self._nodes = _Nodes(
            phase_us=self._random.integers(0, _SECOND_US, nodes),
            cpu=self._random.uniform(0.1, 0.6, nodes),
            memory=self._random.uniform(0.2, 0.6, nodes),
            cost=self._random.uniform(0.005, 0.05, nodes),
            memory_cost=self._random.uniform(0.005, 0.05, nodes),
        )
        self._deviations = np.zeros((len(_MOVES), nodes))
        self._pods = self._random.integers(5, 40, nodes)
        self._since = np.zeros(nodes, dtype=np.int64)
        self._bound = np.zeros(nodes, dtype=np.bool_)
        self._heads = estimate.availabilities([_head(index, self._random) for index in range(nodes)])

    def frames(self, seconds: int, step: int) -> Iterator[pl.DataFrame]:
        """Yield the rows of so many seconds, a frame for each `step` of them, in the order in which they come."""
        for _ in range(0, seconds, step):
            yield self._frame(step)

    def _frame(self, seconds: int) -> pl.DataFrame:
        nodes = len(self._pods)
        numbers = self._second + np.arange(seconds)
        self._second += seconds
        at_us = self._start_us + numbers[:, None] * _SECOND_US + self._nodes.phase_us
        whole = {
            "at_us": at_us,
            "seq": np.broadcast_to(86_400 + numbers[:, None], at_us.shape),
            "pods": self._count(seconds),
        }
        real, memory_binds = self._values(seconds)
        since = self._changes(memory_binds, at_us)
        columns = {name: pl.Series(values.ravel()) for name, values in {**whole, "since_us": since, **real}.items()}
        binding = pl.Series(np.where(memory_binds.ravel(), "memory", "cpu"))
        frame = self._heads[np.tile(np.arange(nodes), seconds)].with_columns(binding=binding, **columns)
        frame = frame.with_columns(cpu_saturation="usage_cpu", classes=_rooms())
        return frame.cast(pl.Schema(TABLE.schema)).select(list(TABLE.schema))

    def _count(self, seconds: int) -> NDArray[np.int64]:
        """Return (seconds, nodes) running pods."""
        changes = self._random.random((seconds, len(self._pods)))
        steps = (changes < 0.003).astype(np.int64) - (changes > 0.997)
        counts = np.maximum(self._pods + np.cumsum(steps, axis=0), 0)
        self._pods = counts[-1]
        return counts

    def _moved(self, seconds: int) -> dict[str, Array]:
        """Return the deviation of each series, (seconds, nodes)."""
        deviation, kept = (np.array(each)[:, None] for each in zip(*_MOVES.values(), strict=True))
        step = np.where(kept < 1, deviation * np.sqrt(1 - kept**2), deviation)
        rows = np.empty((seconds, *self._deviations.shape))
        for second in range(seconds):
            self._deviations = kept * self._deviations + step * self._random.normal(size=self._deviations.shape)
            rows[second] = self._deviations
        return {name: rows[:, index] for index, name in enumerate(_MOVES)}

    def _values(self, seconds: int) -> tuple[dict[str, Array], NDArray[np.bool_]]:
        """Return the columns of numbers, (seconds, nodes), rounded as a processor does, and where memory binds."""
        moved, own = self._moved(seconds), self._nodes
        cpu, memory = np.clip(own.cpu + moved["cpu"], 0, 0.9), np.clip(own.memory + moved["memory"], 0, 0.9)
        cost, memory_cost = own.cost * np.exp(moved["cost"]), own.memory_cost * np.exp(moved["cost"] / 2)
        free, free_memory = 0.9 - cpu, 0.92 - memory
        fits, memory_fits = free / cost, free_memory / memory_cost
        binds = memory_fits < fits
        available, width = np.minimum(fits, memory_fits), np.clip(0.1 + moved["width"], 0.01, 0.5)
        rounded = {
            4: {"available": available, "lower": available * (1 - width), "upper": available * (1 + width)}
            | {"signal": available * 1.02},
            9: {"cost": np.where(binds, memory_cost, cost)},
            6: {"capacity": np.where(binds, 0.92, 0.9) - 0.01 * width, "usage_cpu": cpu / 0.97, "usage_memory": memory}
            | {
                "usage_disk": np.clip(0.02 + moved["disk"], 0, 1),
                "usage_io_pressure": np.clip(moved["io_pressure"], 0, 1),
            }
            | {
                "usage_memory_pressure": np.zeros_like(cpu),
                "free_cpu": free,
                "free_memory": free_memory,
                "cpu_used": cpu,
            }
            | {"explained": np.clip(0.9 + moved["explained"], 0, 1), "gap": np.clip(0.1 - moved["explained"], 0, 1)},
        }
        return {name: np.round(each, digits) for digits, some in rounded.items() for name, each in some.items()}, binds

    def _changes(self, binds: NDArray[np.bool_], at_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return since when the binding is what it is, (seconds, nodes)."""
        since = np.empty_like(at_us)
        for second in range(len(at_us)):
            self._since = np.where(binds[second] != self._bound, at_us[second], self._since)
            self._bound = binds[second]
            since[second] = self._since
        return since


def _head(index: int, random: np.random.Generator) -> Availability:
    """Return the fields of a node that stay, and any values of the others."""
    classes = [_CLASSES[index % len(_CLASSES)], _CLASSES[(index + 1) % len(_CLASSES)]]
    room = ClassRoom(available=0, lower=0, binding="cpu", pods=3, cpu=0.01, memory=0.01, kind="serving", prior=0.0)
    cores = float(random.choice((4, 8, 16, 32)))
    return Availability(
        node=f"node-{index:05d}", at_us=0, seq=0, available=0, lower=0, upper=0, signal=0, cost=0, capacity=0, pods=0,
        binding="cpu", mode="signal", churn=False, prior=0.0, usage={"cpu": 0.0}, explained=1, gap=0, since_us=0,
        free={"cpu": 0.5, "memory": 0.5}, limits={"cpu": cores * 0.95, "memory": cores * 4.0 * 2**30},
        mix={classes[0]: 0.75, classes[1]: 0.25}, classes=dict.fromkeys(classes, room), cpu_used=0.0,
    )  # fmt: skip


def _rooms() -> pl.Expr:
    """Return the classes of each row: the second one's pods are half as large."""
    rooms = []
    for number, size in enumerate((1.0, 0.5)):
        head = pl.col("classes").list.get(number).struct
        cpu, memory = (pl.col("cost") * size).round(9), (pl.col("cost") * 0.8 * size).round(9)
        available, lower = (pl.col(name) / size for name in ("available", "lower"))
        fields = [available.round(4).alias("available"), lower.round(4).alias("lower"), pl.col("binding")]
        fields += [head.field("pods"), cpu.alias("cpu"), memory.alias("memory")]
        rooms.append(pl.struct(head.field("class"), *fields))
    return pl.concat_list(rooms)
