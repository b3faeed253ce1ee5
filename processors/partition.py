"""One partition: its nodes, their state, and the fold of messages into rows.

A value in the shape of an object: `fold` takes messages in stream order and says what must be published,
`snapshot` and `restore` turn the state into bytes and back. No clock, no I/O.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from processors import chain, decode, flat_queue, keyed_sum, plan, report, snapshot, table
from processors.admission import Admission
from processors.chain import Batch, Params
from processors.class_room import Nodes
from processors.pod_class import Tally
from processors.variant import choose
from processors.workloads import Workloads
from processors.world import World, assumed
from schemas.estimate import Model
from schemas.message import Message
from schemas.settings import Settings
from schemas.subject import Names

FORMAT = 2
_FORGET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that cannot be used: its index among those folded, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Output:
    """A message to publish on a subject."""

    subject: str
    message: Message


class _Rows(NamedTuple):
    chain: chain.State
    report: report.State


class Partition:
    """State of all nodes of one partition."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.number = number
        self._settings = settings
        self._names = Names(settings.prefix)
        self._params = Params(settings, choose(settings))
        self.withheld = 0
        self._slots: dict[str, int] = {}
        self._admission = Admission(settings.estimate, self._params.variant.smoothing_reach)
        self._workloads = Workloads(settings.estimate)
        self._rows = self._empty(0)
        self._arrived = 0
        self._watermark = plan.Watermark()
        self._world_message: Model | None = None
        self._world = World()
        self._queue: Any = None
        if not self._params.variant.absolute:
            self._queue = self._params.variant.model_init(1, len(self._params.features))

    @property
    def nodes(self) -> int:
        """Number of nodes known."""
        return len(self._slots)

    @property
    def ignored(self) -> int:
        """Number of container events that could not be laid on their node's clock."""
        return self._admission.ignored

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Output], list[Refusal]]:
        """Fold messages, (stored subject, payload) in stream order.

        Returns:
            What to publish, in order, and what could not be used. Folding the same messages in other groups gives
            the same outputs.
        """
        outputs: list[Output] = []
        items, refused = decode.messages(messages, self._names.model)
        for step, watermark in plan.steps(items, self._watermark, self._admission.admit):
            if isinstance(step, plan.Fold):
                outputs += self._fold(step.entries)
            elif isinstance(step, plan.Learn):
                self._learn(step.tallies)
            elif isinstance(step, plan.Sum):
                outputs += self._sum(step.second)
            else:
                self._adopt(step.model)
            self._watermark = watermark
        return outputs, [Refusal(index, reason) for index, reason in refused]

    def _slot(self, node: str) -> int:
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = len(self._slots)
            if slot >= len(self._rows.report.at_us):
                self._rows = table.extend(self._rows, self._empty(max(16, slot)))
                self._workloads.extend(max(16, slot))
        return slot

    def _forget(self, second: int) -> None:
        """Drop nodes that have been silent for an hour of event time, so that names do not pile up for ever."""
        age = np.abs(second - self._rows.chain.at_us / 1e6)
        gone = {node for node, slot in self._slots.items() if age[slot] > _FORGET_SECONDS}
        self._admission.forget(gone, second)
        if not gone:
            return
        kept = [(node, slot) for node, slot in self._slots.items() if node not in gone]
        rows = np.array([slot for _, slot in kept], dtype=np.intp)
        self._rows = table.take(self._rows, rows)
        self._workloads.keep(rows, gone)
        self._slots = {node: slot for slot, (node, _) in enumerate(kept)}

    def _empty(self, nodes: int) -> _Rows:
        return _Rows(chain.init(nodes, self._params), report.init(nodes))

    def _fold(self, entries: list[plan.Entry]) -> list[Output]:
        rows = np.array([self._slot(entry.node) for entry in entries], dtype=np.intp)
        messages = [entry.block.message for entry in entries]
        at_us = np.array([item.at_us + (item.samples - 1) * item.step_us for item in messages], dtype=np.int64)
        batch = Batch(
            samples=np.stack([entry.block.values for entry in entries]),
            step=np.array([item.step_us / 1e6 for item in messages]),
            at_us=at_us,
            sizes=np.array([self._sizes(item.cpus, item.memory_bytes) for item in messages]),
            stirred=np.array([entry.stirred for entry in entries]),
        )
        before = table.take(self._rows, rows)
        state, result = chain.update(before.chain, batch, self._world, params=self._params)
        room = None
        free, moved = result.free, np.zeros(len(rows), dtype=np.bool_)
        if self._workloads.known(rows):
            room = self._workloads.room(rows, self._nodes(state, result.believed))
            free, moved = room.free, self._workloads.moved(rows, room)
        said, due = report.update(before.report, result, at_us, moved, self._settings.estimate)
        table.put(self._rows, rows, _Rows(state, said))
        if self._queue is not None:
            self._enqueue(state, rows)
        outputs: list[Output] = []
        unknown = np.asarray(np.isnan(result.usage[:, self._params.resources]).any(axis=1))
        # Python numbers by the column: taking one number out of an array costs as much as a whole short column.
        columns = at_us.tolist(), said.since_us.tolist(), free.tolist(), unknown.tolist(), due.tolist()
        for index, (entry, last_us, since_us, room_left, withheld, told) in enumerate(
            zip(entries, *columns, strict=True)
        ):
            if self._settings.smoothing.publish:
                outputs += self._say("smoothed", entry.node, report.smoothed_of, index, entry.block, result)
            if withheld:
                self.withheld += 1  # without cpu or memory nobody knows what fits; absent is better than wrong
            elif told:
                listed = [] if room is None else self._workloads.listed(index, room)
                words = report.Words(last_us, since_us, room_left, room, listed)
                about = index, entry.block, words, result, self._params.features
                outputs += self._say("availability", entry.node, report.availability_of, *about)
        if room is not None:
            self._workloads.tell(rows, room, due)
        return outputs

    def _learn(self, tallies: list[Tally]) -> None:
        rows = np.array([self._slots[tally.node] for tally in tallies], dtype=np.intp)
        state = table.take(self._rows.chain, rows)
        self._workloads.learn(rows, tallies, self._nodes(state, state.usage[:, self._params.resources]))

    def _nodes(self, state: chain.State, believed: NDArray[np.float64]) -> Nodes:
        columns = self._params.resources
        return Nodes(
            usage=state.usage[:, columns],
            believed=believed,
            noise=state.cost.noise[:, columns],
            sizes=state.sizes[:, columns],
            reference=self._reference(state),
            waiting=state.waiting,
            cores=state.cores,
            pods=state.pods,
            churn=state.settling,
            held=state.held,
            endless=state.at_us - state.quiet_us > self._settings.estimate.churn_limit_seconds * 1e6,
        )

    def _reference(self, state: chain.State) -> NDArray[np.float64]:
        """Return the cores and bytes (nodes, resources) that are assumed of a pod of which nothing is known."""
        columns = self._params.resources
        share = assumed(state.sizes, self._world, columns, self._settings.estimate)
        return share[:, columns] * state.sizes[:, columns]

    def _say(self, kind: str, node: str, make: Callable[..., Message | None], *arguments: Any) -> list[Output]:
        """Make a message; numbers that no message can hold are withheld and counted, and harm no other node."""
        try:
            message = make(*arguments)
        except ValidationError:
            self.withheld += 1
            return []
        return [] if message is None else [Output(self._names.node(kind, node), message)]

    def _enqueue(self, state: chain.State, rows: NDArray[np.intp]) -> None:
        """Merge local models one after another, N being the nodes known when each arrived."""
        for index, slot in enumerate(rows):
            self._arrived = max(self._arrived, int(slot) + 1)
            arrival = table.take(state.model, np.array([index]))
            self._queue = flat_queue.update(self._queue, arrival, nodes=self._arrived)

    def _sizes(self, cpus: int, memory_bytes: int) -> list[float]:
        known = {"cpu": float(cpus), "memory": float(memory_bytes)}
        return [known.get(name, 1.0) for name in self._params.features]

    def _sum(self, second: int) -> list[Output]:
        self._forget(second)
        state = self._rows.chain
        silent = self._settings.model.silent_seconds
        alive = state.seen & (np.abs(state.at_us / 1e6 - second) <= silent)
        sizes = self._params.variant.units(state.sizes)
        if self._queue is not None:
            total = flat_queue.moment(self._queue) * int(alive.sum())
        else:
            total = keyed_sum.total(state.moment, sizes, alive)
        cost = _sum_in_order(state.taken * state.sizes, alive)
        pods = float(_sum_in_order(state.counted, alive))
        try:
            classes = self._workloads.sums(alive, self._reference(state))
            sums = report.Sums(total, cost, pods, int(alive.sum()), classes)
            model = report.model_of(second, self.number, self._params.features, sums)
        except ValidationError:
            self.withheld += 1
            return []
        return [Output(self._names.of("model", "partition", str(self.number)), model)]

    def _adopt(self, model: Model) -> None:
        self._world_message = model
        self._world = report.world_of(model, self._params.features)
        self._workloads.adopt(model.classes)

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        used = np.arange(len(self._slots))
        names, arrays = self._workloads.dump(used)
        arrays |= table.flatten(table.take(self._rows, used))
        if self._queue is not None:
            arrays |= table.flatten(self._queue, "queue.")
        header = {
            "format": FORMAT,
            "settings": self._fingerprint(),
            "withheld": self.withheld,
            "nodes": list(self._slots),
            "admission": self._admission.dump(),
            "workloads": names,
            "arrived": self._arrived,
            "watermark": [self._watermark.second, self._watermark.far],
            "world": self._world_message.model_dump(exclude_none=True) if self._world_message else None,
        }
        return snapshot.pack(header, arrays)

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or were made by another version or under settings that change the
                state's shape or meaning.
        """
        header, arrays = snapshot.unpack(body)
        if header.get("format") != FORMAT:
            raise ValueError(
                f"state has format {header.get('format')}, this version reads {FORMAT}; it is built anew by replay"
            )
        if header["settings"] != self._fingerprint():
            raise ValueError("state was made under other settings of smoothing, model or estimate")
        self._rows = table.restore(self._empty(0), arrays)
        if self._queue is not None:
            self._queue = table.restore(self._queue, arrays, "queue.")
        self._slots = {node: slot for slot, node in enumerate(header["nodes"])}
        self._admission.load(header["admission"])
        self._arrived, self.withheld = header["arrived"], header["withheld"]
        self._watermark = plan.Watermark(*header["watermark"])
        world = None if header["world"] is None else Model.model_validate(header["world"])
        self._workloads.load(header["workloads"], arrays)
        if world is not None:
            self._adopt(world)

    def _fingerprint(self) -> str:
        return self._settings.model_dump_json(include={"smoothing", "model", "estimate"})


def _sum_in_order(values: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum over the node axis from the first node to the last, whatever the size of the array."""
    kept = values[alive]
    return np.add.accumulate(kept, axis=0)[-1] if len(kept) else np.zeros(values.shape[1:])
