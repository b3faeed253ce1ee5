"""One partition: its nodes, their state, and the fold of messages into rows.

A value in the shape of an object: `fold` takes messages in stream order and says what must be published,
`snapshot` and `restore` turn the state into bytes and back. No clock, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from processors import decode
from processors.estimation import chain
from processors.estimation.chain import Params, State
from processors.estimation.global_model import World, assumed
from processors.estimation.variant import choose
from processors.model import flat_queue, keyed_sum
from processors.partition import intake, migrate, output, plan, report
from processors.partition.admission import Admission
from processors.partition.output import Output
from processors.rows import snapshot, table
from processors.workload.class_capacity import Nodes, Room
from processors.workload.pod_class import Tally
from processors.workload.workloads import Workloads
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Model
from schemas.messages.telemetry import SmoothedBlock
from schemas.settings import Settings
from schemas.subject import Names

FORMAT = 4


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that cannot be used: its index among those folded, and why."""

    index: int
    reason: str


class _Rows(NamedTuple):
    chain: State
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
        self._workloads = Workloads(settings)
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
    def features(self) -> tuple[str, ...]:
        """Rows of the model."""
        return self._params.features

    @property
    def ignored(self) -> int:
        """Number of container events that could not be laid on their node's clock, and of blocks without the size."""
        return self._admission.ignored

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Output], list[Refusal]]:
        """Fold messages, (stored subject, payload) in stream order.

        Returns:
            What to publish, in the order of what it came of, and what could not be used. Folding the same messages in
            other groups gives the same outputs in the same order.
        """
        outputs: list[Output] = []
        items, refused = decode.messages(messages, self._names.model)
        for step, watermark in plan.steps(items, self._watermark, self._admission.admit):
            if isinstance(step, plan.Fold):
                outputs += self._fold(step.entries)
            elif isinstance(step, plan.Learn):
                self._learn(step.tallies)
            elif isinstance(step, plan.Sum):
                outputs += self._sum(step)
            else:
                self._adopt(step.model)
            self._watermark = watermark
        return outputs, [Refusal(index, reason) for index, reason in refused]

    def state(self, node: str) -> State | None:
        """Return what is known of a node, as rows of one; None: nothing."""
        slot = self._slots.get(node)
        return None if slot is None else table.take(self._rows.chain, np.array([slot]))

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
        gone = self._admission.silent(second, self._watermark.since)
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
        heads = [entry.block.message for entry in entries]
        rows = np.array([self._slot(head.node) for head in heads], dtype=np.intp)
        before = table.take(self._rows, rows)
        local = intake.update(before.chain, entries, params=self._params)
        state, result = chain.conclude(before.chain, local, self._world, params=self._params)
        room = None
        free, moved = result.free, np.zeros(len(rows), dtype=np.bool_)
        if self._workloads.known(rows):
            room = self._workloads.room(rows, self._nodes(state))
            free, moved = room.free, self._workloads.moved(rows, room)
            if self._settings.estimate_form == "composed":
                result = _composed(result, room)
        said, due = report.update(before.report, result, local.at_us, moved, self._settings.estimate)
        table.put(self._rows, rows, _Rows(state, said))
        if self._queue is not None:
            self._enqueue(state, rows)
        faults = [entry.faults for entry in entries]
        words = report.Words(
            heads,
            local.at_us,
            said.since_us,
            free,
            state.amount,
            room,
            self._workloads.listed,
            self._workloads.mixed,
            faults,
        )
        outputs = self._report(words, result, due, [entry.block.place for entry in entries], self._models(heads, state))
        if room is not None:
            self._workloads.tell(rows, room, due)
        return outputs

    def _report(
        self,
        words: report.Words,
        result: chain.Result,
        due: NDArray[np.bool_],
        places: Sequence[int],
        models: Sequence[dict[str, Any] | None],
    ) -> list[Output]:
        """Return what is due to be said, node by node; `models` are those of the nodes, None: not to be said."""
        unknown = np.asarray(np.isnan(result.usage[:, self._params.resources]).any(axis=1))
        # Without cpu or memory nobody knows what fits; absent is better than wrong.
        self.withheld += int(np.count_nonzero(unknown))
        told = np.flatnonzero(due & ~unknown)
        availabilities = report.availabilities(told, words, result, self._params.features)
        publish = self._settings.smoothing.publish
        if not publish and not self._settings.model.publish_local:
            return [
                output
                for index, fields in zip(told.tolist(), availabilities, strict=True)
                for output in self._say("availability", words.heads[index].node, Availability, fields, places[index])
            ]
        outputs: list[Output] = []
        waiting = set(told.tolist())
        smoothed = report.smoothed(words.heads, result.smoothed) if publish else [None] * len(models)
        for index, (head, fields, model) in enumerate(zip(words.heads, smoothed, models, strict=True)):
            if fields is not None:
                outputs += self._say("smoothed", head.node, SmoothedBlock, fields, places[index])
            if index in waiting:
                outputs += self._say("availability", head.node, Availability, next(availabilities), places[index])
            if model is not None:
                outputs += self._say("model.local", head.node, Model, model, places[index])
        return outputs

    def _models(self, heads: list[decode.Head], state: State) -> Sequence[dict[str, Any] | None]:
        """Return the fields of the nodes' local models, as far as they are to be published."""
        if not self._settings.model.publish_local:
            return [None] * len(heads)
        moments = keyed_sum.absolute(state.moment, self._params.variant.units(state.sizes))
        costs = state.taken * state.sizes
        return list(report.local_models(heads, self._params.features, moments, costs, state.counted))

    def _learn(self, tallies: list[Tally]) -> None:
        rows = np.array([self._slots[tally.node] for tally in tallies], dtype=np.intp)
        state = table.take(self._rows.chain, rows)
        self._workloads.learn(rows, tallies, self._nodes(state))

    def _nodes(self, state: State) -> Nodes:
        return Nodes(
            level=state.level,
            amount=state.amount,
            soaked=state.soaked,
            queueing=state.queueing,
            reserved=state.reserved,
            most=state.most,
            reference=self._reference(state),
            running=state.running,
            waiting=state.waiting,
            cores=state.cores,
            full=state.full,
            pods=state.pods,
            churn=state.settling,
        )

    def _reference(self, state: State) -> NDArray[np.float64]:
        """Return the cores and bytes (nodes, resources) that are assumed of a pod of which nothing is known."""
        columns = self._params.resources
        share = assumed(state.sizes, self._world, columns, self._settings.estimate)
        return share[:, columns] * state.sizes[:, columns]

    def _say(self, kind: str, node: str, form: type[Message], fields: dict[str, Any], place: int) -> list[Output]:
        """Make a message; one that cannot be made is withheld and counted, and harms no other node."""
        said = output.make(self._names.node(kind, node), form, fields, place)
        self.withheld += said is None
        return [] if said is None else [said]

    def _enqueue(self, state: State, rows: NDArray[np.intp]) -> None:
        """Merge local models one after another, N being the nodes known when each arrived."""
        for index, slot in enumerate(rows):
            self._arrived = max(self._arrived, int(slot) + 1)
            arrival = table.take(state.model, np.array([index]))
            self._queue = flat_queue.update(self._queue, arrival, nodes=self._arrived)

    def _sum(self, step: plan.Sum) -> list[Output]:
        second = step.second
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
            classes = self._workloads.sums(alive, self._reference(state), second * 1_000_000)
            sums = report.Sums(total, cost, pods, int(alive.sum()), classes)
            model = report.model_of(second, self.number, self._params.features, sums)
        except ValidationError:
            self.withheld += 1
            return []
        return [Output(self._names.of("model", "partition", str(self.number)), model, step.place)]

    def _adopt(self, model: Model) -> None:
        self._world_message = model
        self._world = report.world_of(model, self._params.features)
        self._workloads.adopt(model)

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
            "watermark": [self._watermark.second, self._watermark.far, self._watermark.since],
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
        header, arrays = migrate.forward(header, arrays, FORMAT)
        try:
            if header["settings"] != self._fingerprint():
                raise ValueError("state was made under other settings of smoothing, model or estimate")
            self._take_over(header, arrays)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error

    def _take_over(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self._rows = table.restore(self._empty(0), arrays)
        if any(len(column) != len(header["nodes"]) for column in table.flatten(self._rows).values()):
            raise ValueError(f"state has not one row for each of {len(header['nodes'])} nodes")
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
        # Defaults are left out, so that a setting that is new does not void what was made before there was one.
        state = self._settings.model_copy(
            update={"model": self._settings.model.model_copy(update={"publish_local": False})}
        )
        return state.model_dump_json(include={"smoothing", "model", "policy", "estimate"}, exclude_defaults=True)


def _composed(result: chain.Result, room: Room) -> chain.Result:
    """Return the result with room for the mix to come in the place of room for the mean pod, where it is known."""
    known = room.known
    parts = [np.where(known, ours, theirs) for ours, theirs in zip(room.total, result.room, strict=True)]
    return result._replace(room=type(result.room)._make(parts), prior=np.where(known, room.prior, result.prior))


def _sum_in_order(values: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum over the node axis from the first node to the last, whatever the size of the array."""
    kept = values[alive]
    return np.add.accumulate(kept, axis=0)[-1] if len(kept) else np.zeros(values.shape[1:])
