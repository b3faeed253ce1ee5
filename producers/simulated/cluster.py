"""A cluster second by second: pods come and go, load moves, and each node shows what follows from that.

What a node uses is its idle baseline plus what each of its pods takes. A pod takes its cost, times the wave of its
class, times the load level of its node, and for 0.2 to 2 s after its start several times as much. CPU that is wanted
beyond the cores is not used; it becomes pressure, and every pod gets less. All nodes at once, from one seed, without
a clock: the same seed gives the same seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.simulated import fleet, sample
from producers.simulated.sample import COLUMN, SAMPLES
from schemas.messages.telemetry import OLD_SECONDS

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

SLOTS = 48
NONE = -1

_OFFSETS = np.arange(SAMPLES) / SAMPLES
_FULL_MEMORY = 0.9
_FULL_CPU = 1.15
_STEP_PROBABILITY = 1 / 300
_SPIKE_SECONDS = (0.2, 2.0)


class Pods(NamedTuple):
    """Pods by slot, (nodes, slots); `workload` is `NONE` where there is none.

    `cores` and `memory` are this pod's own means, `serial` counts the pods of its node, `born` is its start and
    `spike` how long that takes, in seconds.
    """

    workload: NDArray[np.int64]
    cores: Array
    memory: Array
    serial: NDArray[np.int64]
    born: Array
    spike: Array


class Change(NamedTuple):
    """A pod that came (`arrived`) or went; `at` is in seconds from the beginning of its node's second."""

    node: int
    workload: int
    serial: int
    at: float
    arrived: bool


class Second(NamedTuple):
    """What happened within one second.

    Attributes:
        number: Which one, from 0.
        samples: (nodes, samples, metrics) in the order of the metrics table.
        node, workload, serial: (pods,) pods at the end of the second, in order of node.
        age: (pods,) seconds since they came, at most 600.
        cores, memory, waiting: (pods,) CPU in cores, working set in bytes, share of time waited for a CPU.
        system_cores, system_memory: (nodes,) what is in no such pod.
        changes: Pods that came and went.
    """

    number: int
    samples: Array
    node: Rows
    workload: NDArray[np.int64]
    serial: NDArray[np.int64]
    age: NDArray[np.int64]
    cores: Array
    memory: Array
    waiting: Array
    system_cores: Array
    system_memory: Array
    changes: list[Change]


class Cluster:
    """A simulated cluster.

    Attributes:
        fleet: Its machines.
        workloads: Its workload classes.
        pods: Its pods now.
    """

    def __init__(self, nodes: int, *, seed: int, churn_per_minute: float, wave_seconds: float) -> None:
        """Draw a cluster with pods on it.

        Args:
            nodes: Number of machines.
            seed: Any number; the same one gives the same cluster.
            churn_per_minute: Pods that come to a node in a minute, and about as many go.
            wave_seconds: Length of the wave of load; a day of the simulation.
        """
        self._random = np.random.default_rng(seed)
        self._churn, self._wave = churn_per_minute / 60, wave_seconds
        self.fleet, self.workloads = fleet.draw(nodes, self._random)
        self.pods = self._filled()
        self._serial = np.full(nodes, SLOTS, dtype=np.int64)
        self._level = self._random.uniform(0.8, 1.2, nodes)
        self._load1 = self._demand(0).sum(axis=1) + self.fleet.idle_cores
        self._second = 0

    def step(self) -> Second:
        """Let one second pass."""
        number, random, nodes = self._second, self._random, len(self.fleet.name)
        self._second += 1
        steps = random.random(nodes) < _STEP_PROBABILITY
        self._level = np.where(steps, random.uniform(0.5, 1.5, nodes), self._level)
        arrivals, departures = self._arrive(number), self._choose_departures()
        wanted = self._demand(number) * random.normal(1.0, 0.03, (nodes, SLOTS))
        whole = self.fleet.idle_cores + wanted.sum(axis=1)
        demand = whole[:, None] + np.zeros(SAMPLES)
        count = np.repeat((self.pods.workload != NONE).sum(axis=1)[:, None].astype(np.float64), SAMPLES, axis=1)
        self._correct(number, wanted, demand, count, departures)
        demand += random.normal(0.0, 1.0, demand.shape) * (0.005 + 0.02 * np.sqrt(np.maximum(demand, 0.0)))
        demand = np.maximum(demand, 0.001)
        samples = self._observe(demand, count)
        changes = [*arrivals, *self._leave(departures)]
        return self._assembled(number, samples, wanted, demand, changes)

    def _filled(self) -> Pods:
        """Put pods on every node until its share of CPU, or its memory, is taken."""
        nodes, own = len(self.fleet.name), self.fleet
        pick = self._random.integers(0, own.classes.shape[1], (nodes, SLOTS))
        pods = self._drawn(np.take_along_axis(own.classes, pick, axis=1))
        fits = np.cumsum(pods.cores, axis=1) <= (own.target * own.cores)[:, None]
        fits &= np.cumsum(pods.memory, axis=1) + own.idle_memory[:, None] <= (0.75 * own.memory)[:, None]
        return pods._replace(
            workload=np.where(fits, pods.workload, NONE),
            serial=np.tile(np.arange(SLOTS), (nodes, 1)),
            born=np.full((nodes, SLOTS), -1e9),
        )

    def _drawn(self, workload: NDArray[np.int64]) -> Pods:
        spread = self._random.normal(0.0, 0.15, (2, *workload.shape))
        return Pods(
            workload=workload,
            cores=self.workloads.cores[workload] * np.exp(spread[0]),
            memory=self.workloads.memory[workload] * np.exp(spread[1]),
            serial=np.zeros_like(workload),
            born=np.zeros(workload.shape),
            spike=self._random.uniform(*_SPIKE_SECONDS, workload.shape),
        )

    def _demand(self, number: int) -> Array:
        """Return the cores (nodes, slots) that pods want, spikes left out; 0 where there is none."""
        work = self.workloads
        wave = 1 + work.swing * np.cos(2 * np.pi * (number / self._wave - work.peak))
        there = self.pods.workload != NONE
        return np.asarray(np.where(there, self.pods.cores * wave[self.pods.workload], 0.0) * self._level[:, None])

    def _arrive(self, number: int) -> list[Change]:
        """Put new pods on some nodes that have room for them."""
        random, own, pods = self._random, self.fleet, self.pods
        there = pods.workload != NONE
        memory = own.idle_memory + np.where(there, pods.memory, 0.0).sum(axis=1)
        cores = own.idle_cores + np.where(there, pods.cores, 0.0).sum(axis=1)
        room = (memory < _FULL_MEMORY * own.memory) & (cores < _FULL_CPU * own.cores) & ~there.all(axis=1)
        rows = np.flatnonzero((random.random(len(room)) < self._churn) & room)
        slots = np.argmin(there[rows], axis=1)
        pick = random.integers(0, own.classes.shape[1], len(rows))
        drawn = self._drawn(own.classes[rows, pick])
        at = random.random(len(rows))
        fits = memory[rows] + drawn.memory <= _FULL_MEMORY * own.memory[rows]
        rows, slots, at = rows[fits], slots[fits], at[fits]
        drawn = Pods(*(column[fits] for column in drawn))._replace(serial=self._serial[rows], born=number + at)
        self._serial[rows] += 1
        for column, values in zip(pods, drawn, strict=True):
            column[rows, slots] = values
        return _changes(rows, drawn.workload, drawn.serial, at, arrived=True)

    def _choose_departures(self) -> tuple[Rows, Rows, Array]:
        """Return node, slot and time within the second of pods that end; pods that just came stay."""
        random, there = self._random, self.pods.workload != NONE
        there &= self.pods.born < self._second - 5
        rows = np.flatnonzero((random.random(len(there)) < self._churn) & there.any(axis=1))
        slots = np.argmax(there[rows] * random.uniform(0.1, 1.0, (len(rows), SLOTS)), axis=1)
        return rows, slots, random.random(len(rows))

    def _correct(
        self, number: int, wanted: Array, demand: Array, count: Array, departures: tuple[Rows, Rows, Array]
    ) -> None:
        """Take away what pods did not use before they came and after they went, and add what starting takes."""
        born = self.pods.born
        young = (self.pods.workload != NONE) & (born + _SPIKE_SECONDS[1] > number)
        rows, slots = np.nonzero(young)
        age = number + _OFFSETS - born[rows, slots][:, None]
        spike = 3 * wanted[rows, slots][:, None] * ((age >= 0) & (age < self.pods.spike[rows, slots][:, None]))
        np.add.at(demand, rows, spike - wanted[rows, slots][:, None] * (age < 0))
        np.subtract.at(count, rows, age < 0)
        wanted[rows, slots] = wanted[rows, slots] * (age >= 0).mean(axis=1) + spike.mean(axis=1)
        rows, slots, at = departures
        gone = at[:, None] <= _OFFSETS
        np.subtract.at(demand, rows, wanted[rows, slots][:, None] * gone)
        np.subtract.at(count, rows, gone)

    def _leave(self, departures: tuple[Rows, Rows, Array]) -> list[Change]:
        rows, slots, at = departures
        changes = _changes(rows, self.pods.workload[rows, slots], self.pods.serial[rows, slots], at, arrived=False)
        self.pods.workload[rows, slots] = NONE
        return changes

    def _observe(self, demand: Array, count: Array) -> Array:
        """Return what the node shows (nodes, samples, metrics) of the CPU that is wanted and of the pods there are."""
        random, own, pods, work = self._random, self.fleet, self.pods, self.workloads
        there, shape = pods.workload != NONE, demand.shape
        share = demand / own.cores[:, None]
        used = own.idle_memory + np.where(there, pods.memory, 0.0).sum(axis=1)
        memory = np.clip((used / own.memory)[:, None] + random.normal(0.0, 5e-4, shape), 0.0, 0.99)
        self._load1 += (demand.mean(axis=1) - self._load1) / 60
        by_level = there * self._level[:, None]
        disk = 0.005 + (by_level * work.disk[pods.workload]).sum(axis=1)
        disk_util = np.clip(disk[:, None] * random.uniform(0.6, 1.4, shape), 0.0, 1.0)
        network = 2e3 + (by_level * work.network[pods.workload]).sum(axis=1)
        net_bytes = network[:, None] * random.uniform(0.8, 1.2, shape)
        return sample.shown(share, memory, disk_util, net_bytes, 1 + demand, self._load1, count)

    def _assembled(self, number: int, samples: Array, wanted: Array, demand: Array, changes: list[Change]) -> Second:
        own, pods = self.fleet, self.pods
        mean = demand.mean(axis=1)
        served = np.minimum(1.0, own.cores / mean)
        rows, slots = np.nonzero(pods.workload != NONE)
        cores = wanted[rows, slots] * served[rows]
        memory = np.floor(pods.memory[rows, slots])
        nodes = len(own.name)
        used = samples[:, -1, COLUMN["memory_util"]] * own.memory
        busy = samples[..., COLUMN["cpu_util"]].mean(axis=1) * own.cores
        return Second(
            number=number,
            samples=samples,
            node=rows,
            workload=pods.workload[rows, slots],
            serial=pods.serial[rows, slots],
            age=np.clip(number + 1 - pods.born[rows, slots], 0, OLD_SECONDS).astype(np.int64),
            cores=cores,
            memory=memory,
            waiting=samples[..., COLUMN["cpu_pressure"]].mean(axis=1)[rows],
            system_cores=np.maximum(busy - np.bincount(rows, cores, nodes), 0.0),
            system_memory=np.floor(np.maximum(used - np.bincount(rows, memory, nodes), 0.0)),
            changes=changes,
        )


def _changes(
    rows: Rows, workload: NDArray[np.int64], serial: NDArray[np.int64], at: Array, *, arrived: bool
) -> list[Change]:
    columns = (rows.tolist(), workload.tolist(), serial.tolist(), at.tolist())
    return [Change(*each, arrived=arrived) for each in zip(*columns, strict=True)]
