"""The workload classes of a partition: slots per node, names, and what the cluster knows of classes.

A node distinguishes as many classes as it has slots. When they are full, a newcomer takes the slot of the class that
has been without pods for longest. While all have pods it takes that of a class with fewer pods of which nothing was
started for long, as of a DaemonSet: of the one that uses least. Otherwise its pods count among those whose class
nothing says, which have a slot of their own, the last: what their mean pod takes may come again, too.
A class that the node has never run is known from the cluster's sums, so every node says how many of it would fit.
What is per node depends on that node's messages and on the global model alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.rows import table
from processors.rows.name_index import NameIndex
from processors.workload import classes, cost, mix, reported, usage
from processors.workload.capacity import class_capacity
from processors.workload.capacity.class_capacity import Room
from processors.workload.capacity.nodes import Nodes
from processors.workload.classes import EMPTY
from processors.workload.cluster import totals, voting
from processors.workload.cluster.view import ClusterView
from processors.workload.cost import Cost
from processors.workload.pod_class import UNNAMED, Tally
from processors.workload.pods import pods_of
from schemas.messages.estimate import Model
from schemas.settings import Settings

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_STRANGE, _NEW_SECONDS = 4.0, 3.0
_STILL = 0.5  # starts of about an hour, faded: nothing was started for 40 minutes


class Workloads:
    """Class state of all nodes of one partition."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._estimate = settings, settings.estimate
        self._index = NameIndex()
        self._cluster = ClusterView(self._index)
        self._slots: dict[str, dict[str, int]] = {}
        self._unplaced: dict[str, list[str]] = {}  # classes of each node's last block that have no slot
        self._columns = settings.estimate.classes + 1
        self._state = classes.init(0, self._columns)
        self._reported = reported.init(0, self._columns)

    def extend(self, nodes: int) -> None:
        """Make room for so many more nodes."""
        self._state = table.extend(self._state, classes.init(nodes, self._columns))
        self._reported = table.extend(self._reported, reported.init(nodes, self._columns))

    def keep(self, rows: Rows, gone: set[str]) -> None:
        """Keep these rows, in this order."""
        self._state, self._reported = table.take(self._state, rows), table.take(self._reported, rows)
        for node in gone:
            self._slots.pop(node, None)
            self._unplaced.pop(node, None)

    def adopt(self, model: Model) -> None:
        """Take over what the cluster knows."""
        if not self._estimate.classes:
            return
        before = {int(label): column for column, label in enumerate(self._cluster.classes.label)}
        self._cluster.adopt(model)
        labels = self._cluster.classes.label.tolist()
        if list(before) != labels:
            self._reported = reported.adopt(self._reported, self._columns, before, labels)

    def learn(self, rows: Rows, tallies: Sequence[Tally], nodes: Nodes) -> None:
        """Take in one block of pod usage of each of some nodes."""
        blocks = [tally.block for tally in tallies]
        pods = pods_of(blocks, nodes.waiting, nodes.cores)
        rest = np.array([(each.system_cpu_cores, each.system_memory_bytes) for each in blocks], dtype=np.float64)
        everything = np.stack((nodes.running, nodes.level.mean[:, 1] * nodes.amount[:, 1]), axis=1)
        slot = np.concatenate([self._placed(row, tally) for row, tally in zip(rows.tolist(), tallies, strict=True)])
        at_us = np.array([tally.at_us for tally in tallies], dtype=np.int64)
        beside = usage.Beside(
            rest=np.where(np.isnan(rest), np.maximum(everything - pods.used, 0.0), rest),
            cached=np.maximum(pods.used[:, 1] + np.nan_to_num(rest[:, 1]) - everything[:, 1], 0.0),
            ceiling=self._state.ceiling[rows],
            quota=self._state.quota[rows],
            amount=nodes.amount,
            cores=nodes.cores,
            running=nodes.running,
            aged=np.array([each.ages is not None for each in blocks]),
            at_us=at_us,
            span=np.array([each.span_us / 1e6 for each in blocks]),
            gap=(at_us - self._state.at_us[rows]) / 1e6,
        )
        declared = np.concatenate([tally.grouping.declared for tally in tallies])
        recurring = np.concatenate([tally.grouping.recurring for tally in tallies])
        block = usage.add_up(pods, slot, declared, recurring, self._columns, beside)
        # No class takes more than the node has, whatever somebody says.
        size = np.stack((nodes.cores, nodes.amount[:, 1]), axis=1)[:, None, :]
        block = block._replace(used=np.minimum(block.used, size), between=np.minimum(block.between, size**2))
        before = classes.adopt_soaking(table.take(self._state, rows), self._cluster.soaking)
        hold = nodes.churn & self._estimate.hold_in_churn
        memory = self._estimate.memory_seconds
        table.put(self._state, rows, classes.update(before, block, nodes.full, hold, memory=memory))

    def _placed(self, row: int, tally: Tally) -> NDArray[np.intp]:
        """Return the slot (pods,) of the class of each pod of a block; -1: none. Most pods first among newcomers."""
        slots, names, last = self._slots.setdefault(tally.node, {}), tally.grouping.names, self._columns - 1
        if newcomers := [name for name in names if name not in slots and name != UNNAMED]:
            pods = dict(zip(names, np.bincount(tally.grouping.number + 1, minlength=len(names) + 1)[1:], strict=True))
            for name in sorted(newcomers, key=lambda name: (-pods[name], name)):
                slot = len(slots)
                if slot >= last:
                    if (given_up := self._given_up(row, slots, pods, pods[name])) is None:
                        break
                    slot = slots.pop(given_up)
                    self._add_to_rest(row, pods.get(given_up, 0))
                slots[name] = slot
                self._clear(row, slot, name)
                if name in self._unplaced.get(tally.node, ()):  # its pods run already, so none of them starts now
                    others = self._state.pods[row, last]
                    mix.move(self._state.starts, row, last, slot, min(pods[name] / max(others, 1.0), 1.0))
                    self._state.pods[row, slot] = pods[name]
                    self._state.pods[row, last] = max(others - pods[name], 0.0)
            self._unplaced[tally.node] = [name for name in names if name not in slots]
        else:
            self._unplaced.pop(tally.node, None)
        if self._state.label[row, last] == EMPTY and not slots.keys() >= set(names):
            self._clear(row, last, UNNAMED)
        # The last one is that of pods without a running container.
        return np.array([*(slots.get(name, last) for name in names), -1], dtype=np.intp)[tally.grouping.number]

    def _add_to_rest(self, row: int, pods: int) -> None:
        """Count pods, which run already, as those of no class with a slot of its own."""
        last = self._columns - 1
        if pods and self._state.label[row, last] == EMPTY:
            self._clear(row, last, UNNAMED)
        self._state.pods[row, last] += pods

    def _clear(self, row: int, slot: int, name: str) -> None:
        """Give a slot to a class of which the node knows nothing yet."""
        number = self._index.number(name)
        classes.clear(self._state, row, slot, number, self._cluster.share_soaking(number))
        reported.clear(self._reported, row, slot)

    def _given_up(self, row: int, slots: Mapping[str, int], pods: Mapping[str, int], more_than: int) -> str | None:
        """Return the class of a node that gives its slot to another with so many pods; None: each one stays."""
        if idle := [(self._state.present_us[row, slots[name]], name) for name in slots.keys() - pods.keys()]:
            return min(idle)[1]
        started, cores = self._state.starts.started[row], np.nan_to_num(self._state.demand.mean[row])
        still = [name for name, slot in slots.items() if started[slot] < _STILL and pods[name] < more_than]
        return min(still, key=lambda name: (pods[name] * cores[slots[name]], name), default=None)

    def any_known(self, rows: Rows) -> bool:
        """Tell whether any of these nodes, or the cluster, knows a class."""
        return bool(len(self._cluster.classes.label)) or bool(np.any(self._state.label[rows] >= 0))

    def room(self, rows: Rows, nodes: Nodes) -> Room:
        """Return the room of every class that these nodes or the cluster know."""
        state = table.take(self._state, rows)
        new, deviation = state.demand.age[..., None] < _NEW_SECONDS, self._estimate.prior_deviation
        taken = self._cost(state, np.where(new, nodes.newcomer[:, None], nodes.reference[:, None]))
        seen, taken = cost.beginning(state, taken, self._cluster.witnessed(state.label), deviation=deviation)
        coming = self._cluster.coming(state)
        return class_capacity.update(seen, taken, self._cluster.classes, nodes, coming, settings=self._settings)

    def moved(self, rows: Rows, room: Room) -> NDArray[np.bool_]:
        """Return of which nodes (nodes,) a class has changed enough to be reported at once."""
        return reported.moved(self._reported, rows, room, self._columns, self._estimate)

    def tell(self, rows: Rows, room: Room, due: NDArray[np.bool_]) -> None:
        """Remember what is reported of those nodes (nodes,) that are due."""
        reported.tell(self._reported, rows, room, due)

    def listed(self, index: int, room: Room) -> list[tuple[str, int]]:
        """Return names and columns of a node's classes: those with most pods first, here, then in the cluster."""
        return reported.listed(room.label[index], room.pods[index], self._cluster.classes, self._index.names)

    def mixes(self, indices: Rows, room: Room) -> list[dict[str, float]]:
        """Return the weights of some nodes' mixes by class, the largest of each; none where no mix counts."""
        counting = np.where(room.estimated[indices, None], room.weights[indices], 0.0)
        return reported.named(counting, room.label[indices], self._index.names)

    def evidence(self, reference: Array, at_us: NDArray[np.int64]) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Return what `totals.of_nodes` does, and of which nodes (nodes,) usage of pods has come lately."""
        state, silent_us = self._state, at_us - self._state.at_us
        lately = state.measured.all(axis=1) & (silent_us <= self._estimate.memory_seconds * 1e6)
        # What comes of no class that the mix has is as those that it lacks, if several nodes have any.
        weight = self._cluster.weight(state.label)
        return *totals.of_nodes(state, self._cost(state, reference[:, None]), weight), lately

    def sums(self, alive: NDArray[np.bool_], reference: Array, at_us: int) -> totals.Sums | None:
        """Add up pods and usage by class over live nodes, each as far as it has evidence of its own; and starts.

        Args:
            alive: (nodes,) nodes that count.
            reference: (nodes, resources) as in `Nodes`.
            at_us: The time.
        """
        self._tidy()
        rows = np.flatnonzero(alive & np.any(self._state.label >= 0, axis=1))
        if not rows.size:
            return None
        state, label = table.take(self._state, rows), self._state.label[rows]
        cluster = self._cluster
        of_mix = cluster.cost_of_mix(reference[rows])
        believed = totals.Believed(cluster.cost(label), cluster.fair(label), of_mix, cluster.mixed(label))
        return totals.add_up(state, self._cost(state, reference[rows, None]), believed, self._index.names, at_us)

    def outvoted(self, rows: Rows, oversized: Sequence[bool]) -> dict[int, list[str]]:
        """Return what nodes say that their facts or other nodes contradict, by index of the row.

        Args:
            rows: The nodes.
            oversized: Whether each claims to be larger than it can be.
        """
        if not self._cluster.is_witnessed:
            return reported.claims(oversized, [])
        state = table.take(self._state, rows)
        far, names = voting.far(state, self._cluster.witnessed(state.label)), self._index.names
        return reported.claims(
            oversized, ((index, names[int(state.label[index, slot])]) for index, slot in np.argwhere(far).tolist())
        )

    def dump(self, rows: Rows) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return names as JSON types, and the arrays of these rows."""
        names = {
            "names": self._index.names,
            "slots": self._slots,
            "unplaced": {node: names for node, names in self._unplaced.items() if names},
            **self._cluster.dump(),
        }
        arrays = table.flatten(table.take(self._state, rows), "classes.")
        return names, arrays | reported.dump(table.take(self._reported, rows))

    def load(self, names: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `dump` returned.

        Raises:
            ValueError: An array is missing or of another shape.
        """
        self._index, self._slots = NameIndex(names["names"]), names["slots"]
        self._unplaced, self._cluster = names.get("unplaced", {}), ClusterView(self._index)
        self._cluster.load(names)
        self._state = table.restore(classes.init(0, self._columns), arrays, "classes.")
        self._reported = reported.load(self._reported, arrays)

    def _cost(self, state: classes.State, of_any: Array) -> Cost:
        """Weigh the nodes' own evidence and what is assumed: the cluster's cost of that class, else that of any pod."""
        of_class = self._cluster.cost(state.label)
        strange = np.isnan(of_class)
        prior = np.where(strange, of_any, np.maximum(of_class, of_any / 100))
        # What pods of other classes take says next to nothing of this one.
        deviation = self._estimate.prior_deviation * np.where(strange[..., :1], _STRANGE, 1.0)
        return cost.weigh(state, prior, deviation=deviation)

    def _tidy(self) -> None:
        moved = self._index.tidy(np.concatenate((self._state.label.ravel(), self._cluster.classes.label)))
        if moved is not None:
            for label in (self._state.label, self._state.starts.latest):
                label[:] = np.where(label >= 0, moved[label], EMPTY)
            self._cluster.renumber(moved)
