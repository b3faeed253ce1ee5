"""The workload classes of a partition: slots per node, names, and what the cluster knows of classes.

A node tells as many classes apart as it has slots. When they are full, a newcomer takes the slot of the class that
has been without pods for longest; while all have pods it is not told apart, and its usage counts as the node's own.
A class that the node has never run is known from the cluster's sums, so every node says how many of it would fit.
Everything here is numbers per row of the partition's nodes, and what is per node depends on that node's messages and
on the global model alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors import class_room, classes, table
from processors.class_room import Cluster, Nodes, Room
from processors.classes import EMPTY
from processors.pod_class import Tally
from processors.roll import Roll
from processors.world import EVIDENT_PODS
from schemas.estimate import MAXIMUM_CLASSES, ClassSum
from schemas.section import Estimate

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_CHANGE = 0.05


_UNKNOWN = Cluster(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 2)))


class Workloads:
    """Class state of all nodes of one partition."""

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self._roll = Roll()
        self._slots: dict[str, dict[str, int]] = {}
        self._state = classes.init(0, estimate.classes)
        self._told = np.zeros((0, estimate.classes + MAXIMUM_CLASSES))
        self._cluster = _UNKNOWN
        self._priors = np.full((1, 2), np.nan)

    def extend(self, nodes: int) -> None:
        """Make room for so many more nodes."""
        self._state = table.extend(self._state, classes.init(nodes, self._estimate.classes))
        self._told = np.concatenate((self._told, np.full((nodes, self._told.shape[1]), np.nan)))

    def keep(self, rows: Rows, gone: set[str]) -> None:
        """Keep these rows, in this order."""
        self._state, self._told = table.take(self._state, rows), self._told[rows]
        for node in gone:
            self._slots.pop(node, None)

    def adopt(self, known: Mapping[str, ClassSum] | None) -> None:
        """Take over what the cluster knows."""
        if not self._estimate.classes:
            return
        before = {int(label): column for column, label in enumerate(self._cluster.label)}
        evident = sorted((name, item) for name, item in (known or {}).items() if item.pods >= EVIDENT_PODS)
        self._cluster = Cluster(
            np.array([self._roll.number(name) for name, _ in evident], dtype=np.int64),
            np.array([item.pods for _, item in evident]),
            np.array([(item.cpu / item.pods, item.memory / item.pods) for _, item in evident]).reshape(-1, 2),
        )
        self._priors = np.full((1, 2), np.nan)
        if list(before) != self._cluster.label.tolist():
            own, told = self._estimate.classes, np.full_like(self._told, np.nan)
            told[:, :own] = self._told[:, :own]
            for column, label in enumerate(self._cluster.label.tolist()):
                if label in before:
                    told[:, own + column] = self._told[:, own + before[label]]
            self._told = told

    def learn(self, rows: Rows, tallies: Sequence[Tally], nodes: Nodes) -> None:
        """Take in one block of pod usage of each of some nodes."""
        shape = (len(rows), self._estimate.classes)
        usage = classes.Usage(
            pods=np.zeros(shape),
            counted=np.zeros((*shape, 2)),
            used=np.zeros((*shape, 2)),
            waiting=np.zeros(shape),
            at_us=np.array([tally.at_us for tally in tallies], dtype=np.int64),
            span=np.array([tally.span_us / 1e6 for tally in tallies]),
        )
        for index, (row, tally) in enumerate(zip(rows.tolist(), tallies, strict=True)):
            for slot, name in self._placed(row, tally):
                item = tally.sums[name]
                usage.pods[index, slot] = item.running
                usage.counted[index, slot] = item.counted
                usage.used[index, slot] = item.used
                usage.waiting[index, slot] = item.stalled
        # A host whose own processes wait, and no pod does, owes its pods nothing.
        least = np.array([tally.pressure for tally in tallies]) * nodes.waiting / nodes.cores
        whole = np.maximum(np.array([tally.stalled for tally in tallies]), least)
        # First the share, which is at most 1: what a hair's breadth of waiting is divided by may be as thin.
        share = np.divide(usage.waiting, whole[:, None], out=np.zeros_like(usage.waiting), where=whole[:, None] > 0)
        # No class takes more than the node has, whatever somebody says.
        used = np.minimum(usage.used, nodes.sizes[:, None, :])
        usage = usage._replace(used=used, waiting=share * nodes.waiting[:, None])
        before = table.take(self._state, rows)
        moved = np.array([tally.churn for tally in tallies]) | np.any(usage.pods != before.pods, axis=1)
        hold = nodes.held | (moved & ~nodes.endless & self._estimate.hold_in_churn)
        after = classes.update(
            before,
            usage,
            nodes.usage,
            nodes.sizes,
            hold,
            memory=self._estimate.memory_seconds,
            following=self._estimate.level_seconds,
        )
        table.put(self._state, rows, after)

    def _placed(self, row: int, tally: Tally) -> Iterator[tuple[int, str]]:
        """Yield slot and name of each class of a block that is told apart, most pods first among newcomers."""
        slots = self._slots.setdefault(tally.node, {})
        for name in sorted(tally.sums.keys() - slots.keys(), key=lambda name: (-tally.sums[name].running, name)):
            slot = len(slots)
            if slot >= self._estimate.classes:
                idle = [(self._state.present_us[row, slots[other]], other) for other in slots.keys() - tally.sums]
                if not idle:
                    break
                slot = slots.pop(min(idle)[1])
            slots[name] = slot
            classes.clear(self._state, row, slot, self._roll.number(name))
            self._told[row, slot] = np.nan
        for name in tally.sums:
            if name in slots:
                yield slots[name], name

    def known(self, rows: Rows) -> bool:
        """Tell whether any of these nodes, or the cluster, knows a class."""
        return bool(len(self._cluster.label)) or bool(np.any(self._state.label[rows] >= 0))

    def room(self, rows: Rows, nodes: Nodes) -> Room:
        """Return the room of every class that these nodes or the cluster know."""
        state = table.take(self._state, rows)
        return class_room.update(state, self._cost(state, nodes.reference), self._cluster, nodes, params=self._estimate)

    def moved(self, rows: Rows, room: Room) -> NDArray[np.bool_]:
        """Tell of which nodes (nodes,) a class's room has changed enough to be told at once.

        A class that is new on the node is; one that is new in the cluster waits for the next report of each node.
        """
        told = self._told[rows, : room.label.shape[1]]
        least = np.maximum(self._estimate.change_pods, _CHANGE * told)
        changed = np.abs(room.available - told) >= least
        changed[:, : self._estimate.classes] |= np.isnan(told[:, : self._estimate.classes])
        return np.asarray(np.any((room.label >= 0) & changed, axis=1))

    def tell(self, rows: Rows, room: Room, due: NDArray[np.bool_]) -> None:
        """Remember what is told of those nodes (nodes,) that are due."""
        told = np.where(room.label >= 0, room.available, np.nan)
        self._told[rows[due], : told.shape[1]] = told[due]

    def listed(self, index: int, room: Room) -> list[tuple[str, int]]:
        """Return names and columns of a node's classes: those with most pods first, here, then in the cluster."""
        elsewhere = dict(zip(self._cluster.label.tolist(), self._cluster.pods.tolist(), strict=True))
        pods = room.pods[index].tolist()
        named = [
            (-pods[column], -elsewhere.get(label, 0.0), self._roll.names[label], column)
            for column, label in enumerate(room.label[index].tolist())
            if label != EMPTY
        ]
        return [(name, column) for _, _, name, column in sorted(named)[:MAXIMUM_CLASSES]]

    def sums(self, alive: NDArray[np.bool_], reference: Array) -> dict[str, ClassSum] | None:
        """Add up pods and usage by class over live nodes, each as far as it has evidence of its own.

        Args:
            alive: (nodes,) nodes that count.
            reference: (nodes, resources) as in `Nodes`.
        """
        self._tidy()
        rows = np.flatnonzero(alive & np.any(self._state.label >= 0, axis=1))
        if not rows.size:
            return None
        state = table.take(self._state, rows)
        share = self._cost(state, reference[rows]).prior.max(axis=2)
        counted = np.maximum(1.0 - share, 0.0) * state.pods
        taken = classes.slope(state) * counted[..., None]
        used = (state.label >= 0) & (counted > 0)
        columns = [counted[used], taken[used][:, 0], taken[used][:, 1]]
        totals = np.stack([np.bincount(state.label[used], column, len(self._roll)) for column in columns], axis=1)
        found = sorted((-totals[label, 0], self._roll.names[label], label) for label in np.flatnonzero(totals[:, 0]))
        return {
            name: ClassSum(pods=totals[label, 0], cpu=totals[label, 1], memory=totals[label, 2])
            for _, name, label in found[:MAXIMUM_CLASSES]
        } or None

    def dump(self, rows: Rows) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return names as JSON types, and the arrays of these rows."""
        arrays = table.flatten(table.take(self._state, rows), "classes.")
        names = {"names": self._roll.names, "slots": self._slots, "cluster": self._cluster.label.tolist()}
        return names, arrays | {"told": self._told[rows]}

    def load(self, names: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `dump` returned.

        Raises:
            ValueError: An array is missing or of another shape.
        """
        self._roll, self._slots = Roll(names["names"]), names["slots"]
        self._cluster = _UNKNOWN._replace(label=np.array(names["cluster"], dtype=np.int64))
        self._state = table.restore(classes.init(0, self._estimate.classes), arrays, "classes.")
        (self._told,) = table.restore((self._told,), {"0": arrays["told"]} if "told" in arrays else {})

    def _cost(self, state: classes.State, reference: Array) -> classes.Cost:
        """Weigh the nodes' own evidence and what is assumed: the cluster's cost of that class, else that of any pod."""
        if len(self._priors) <= len(self._roll):
            self._priors = np.full((len(self._roll) + 1, 2), np.nan)  # the last row is that of EMPTY
            self._priors[self._cluster.label] = self._cluster.cost
        of_class, of_any = self._priors[state.label], reference[:, None, :]
        prior = np.where(np.isnan(of_class), of_any, np.maximum(of_class, of_any / 100))
        return classes.cost(state, prior, deviation=self._estimate.prior_deviation)

    def _tidy(self) -> None:
        moved = self._roll.tidy(np.concatenate((self._state.label.ravel(), self._cluster.label)))
        if moved is not None:
            label = self._state.label
            label[:] = np.where(label >= 0, moved[label], EMPTY)
            self._cluster = self._cluster._replace(label=moved[self._cluster.label])
            self._priors = np.full((1, 2), np.nan)
