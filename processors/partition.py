"""One partition: its nodes, their state, and the fold of messages into rows.

A value in the shape of an object: `fold` takes messages in stream order and says what must be published,
`snapshot` and `restore` turn the state into bytes and back. No clock, no I/O.
"""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from processors import chain, decode, flat_queue, keyed_sum, plan, report, table
from processors.chain import Batch, Params
from processors.decode import Block
from processors.variant import choose
from schemas import codec
from schemas.estimate import Model
from schemas.message import Message
from schemas.settings import Settings
from schemas.subject import Names

FORMAT = 1
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
        self._marks: dict[str, tuple[str, int]] = {}
        self._rows = self._empty(0)
        self._arrived = 0
        self._watermark = plan.Watermark()
        self._world_message: Model | None = None
        self._world = chain.World()
        self._queue: Any = None
        if not self._params.variant.absolute:
            self._queue = self._params.variant.model_init(1, len(self._params.features))

    @property
    def nodes(self) -> int:
        """Number of nodes known."""
        return len(self._slots)

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Output], list[Refusal]]:
        """Fold messages, (stored subject, payload) in stream order.

        Returns:
            What to publish, in order, and what could not be used. Folding the same messages in other groups gives
            the same outputs.
        """
        outputs: list[Output] = []
        items, refusals = self._decode(messages)
        for step, watermark in plan.steps(items, self._watermark, self._admit):
            if isinstance(step, plan.Fold):
                outputs += self._fold(step.blocks)
            elif isinstance(step, plan.Sum):
                outputs += self._sum(step.second)
            else:
                self._adopt(step.model)
            self._watermark = watermark
        return outputs, refusals

    def _decode(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Block | Model], list[Refusal]]:
        models = {index for index, (subject, _) in enumerate(messages) if subject == self._names.model}
        decoded = iter(decode.blocks(pair for index, pair in enumerate(messages) if index not in models))
        items: list[Block | Model] = []
        refusals: list[Refusal] = []
        for index, (_, payload) in enumerate(messages):
            try:
                item = _global(payload) if index in models else next(decoded)
                if isinstance(item, codec.Refused):
                    raise item
                items.append(item)
            except codec.Refused as refusal:
                refusals.append(Refusal(index, str(refusal)))
        return items, refusals

    def _admit(self, block: Block) -> str | None:
        """Return the node of a block, or None if this second of this boot was folded already."""
        message = block.message
        boot, seq = self._marks.get(message.node, ("", -1))
        if boot == message.boot and message.seq <= seq:
            return None
        self._marks[message.node] = (message.boot, message.seq)
        return message.node

    def _slot(self, node: str) -> int:
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = len(self._slots)
            if slot >= len(self._rows.report.at_us):
                self._rows = table.extend(self._rows, self._empty(max(16, slot)))
        return slot

    def _forget(self, second: int) -> None:
        """Drop nodes that have been silent for an hour of event time, so that names do not pile up for ever."""
        age = np.abs(second - self._rows.chain.at_us / 1e6)
        gone = {node for node, slot in self._slots.items() if age[slot] > _FORGET_SECONDS}
        if not gone:
            return
        kept = [(node, slot) for node, slot in self._slots.items() if node not in gone]
        self._rows = table.take(self._rows, np.array([slot for _, slot in kept], dtype=np.intp))
        self._slots = {node: slot for slot, (node, _) in enumerate(kept)}
        for node in gone:
            self._marks.pop(node, None)

    def _empty(self, nodes: int) -> _Rows:
        return _Rows(chain.init(nodes, self._params), report.init(nodes))

    def _fold(self, blocks: list[tuple[str, Block]]) -> list[Output]:
        rows = np.array([self._slot(node) for node, _ in blocks], dtype=np.intp)
        messages = [block.message for _, block in blocks]
        at_us = np.array([item.at_us + (item.samples - 1) * item.step_us for item in messages], dtype=np.int64)
        batch = Batch(
            samples=np.stack([block.values for _, block in blocks]),
            step=np.array([item.step_us / 1e6 for item in messages]),
            at_us=at_us,
            sizes=np.array([self._sizes(item.cpus, item.memory_bytes) for item in messages]),
        )
        before = table.take(self._rows, rows)
        state, result = chain.update(before.chain, batch, self._world, params=self._params)
        said, due = report.update(before.report, result, at_us, self._settings.estimate)
        table.put(self._rows, rows, _Rows(state, said))
        if self._queue is not None:
            self._enqueue(state, rows)
        outputs: list[Output] = []
        unknown = np.asarray(np.isnan(result.usage[:, self._params.resources]).any(axis=1))
        for index, (node, block) in enumerate(blocks):
            if self._settings.smoothing.publish:
                outputs += self._say("smoothed", node, report.smoothed_of, index, block, result)
            if unknown[index]:
                self.withheld += 1  # without cpu or memory nobody knows what fits; absent is better than wrong
            elif due[index]:
                times = int(at_us[index]), int(said.since_us[index])
                outputs += self._say(
                    "availability", node, report.availability_of, index, block, *times, result, self._params.features
                )
        return outputs

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
            model = report.model_of(second, self.number, self._params.features, total, cost, pods, int(alive.sum()))
        except ValidationError:
            self.withheld += 1
            return []
        return [Output(self._names.of("model", "partition", str(self.number)), model)]

    def _adopt(self, model: Model) -> None:
        self._world_message = model
        self._world = report.world_of(model, self._params.features)

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        used = np.arange(len(self._slots))
        arrays = table.flatten(table.take(self._rows, used))
        if self._queue is not None:
            arrays |= table.flatten(self._queue, "queue.")
        header = {
            "format": FORMAT,
            "settings": self._fingerprint(),
            "withheld": self.withheld,
            "nodes": list(self._slots),
            "marks": self._marks,
            "arrived": self._arrived,
            "watermark": [self._watermark.second, self._watermark.far],
            "world": self._world_message.model_dump(exclude_none=True) if self._world_message else None,
        }
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
        return buffer.getvalue()

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or were made by another version or under settings that change the
                state's shape or meaning.
        """
        try:
            with np.load(io.BytesIO(body), allow_pickle=False) as stored:
                arrays: dict[str, NDArray[Any]] = {name: stored[name] for name in stored.files}
            header = json.loads(arrays.pop("header").tobytes())
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"state is damaged: {error}") from error
        if header.get("format") != FORMAT:
            raise ValueError(f"state has format {header.get('format')}, this version reads {FORMAT}")
        if header["settings"] != self._fingerprint():
            raise ValueError("state was made under other settings of smoothing, model or estimate")
        self._rows = table.restore(self._empty(0), arrays)
        if self._queue is not None:
            self._queue = table.restore(self._queue, arrays, "queue.")
        self._slots = {node: slot for slot, node in enumerate(header["nodes"])}
        self._marks = {node: (boot, seq) for node, (boot, seq) in header["marks"].items()}
        self._arrived, self.withheld = header["arrived"], header["withheld"]
        self._watermark = plan.Watermark(*header["watermark"])
        if header["world"] is not None:
            self._adopt(Model.model_validate(header["world"]))

    def _fingerprint(self) -> str:
        return self._settings.model_dump_json(include={"smoothing", "model", "estimate"})


def _global(payload: bytes) -> Model:
    model = codec.decode(Model, payload)
    if model.scope != "global":
        raise codec.Refused(f"scope: {model.scope} is not global")
    return model


def _sum_in_order(values: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum over the node axis from the first node to the last, whatever the size of the array."""
    kept = values[alive]
    return np.add.accumulate(kept, axis=0)[-1] if len(kept) else np.zeros(values.shape[1:])
