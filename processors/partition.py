"""One partition: its nodes, their state, and the fold of messages into rows.

A value in the shape of an object: `fold` takes messages in stream order and says what must be published,
`snapshot` and `restore` turn the state into bytes and back. No clock, no I/O.
"""

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        self._slots: dict[str, int] = {}
        self._boots: list[str] = []
        self._seqs: list[int] = []
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
                outputs.append(self._sum(step.second))
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
                item = codec.decode(Model, payload) if index in models else next(decoded)
                if isinstance(item, codec.Refused):
                    raise item
                items.append(item)
            except codec.Refused as refusal:
                refusals.append(Refusal(index, str(refusal)))
        return items, refusals

    def _admit(self, block: Block) -> int | None:
        message = block.message
        slot = self._slots.get(message.node)
        if slot is None:
            slot = self._slots[message.node] = len(self._slots)
            self._boots.append(message.boot)
            self._seqs.append(-1)
            if slot >= len(self._rows.report.at_us):
                self._rows = table.extend(self._rows, self._empty(max(16, slot)))
        if self._boots[slot] == message.boot and message.seq <= self._seqs[slot]:
            return None
        self._boots[slot], self._seqs[slot] = message.boot, message.seq
        return slot

    def _empty(self, nodes: int) -> _Rows:
        return _Rows(chain.init(nodes, self._params), report.init(nodes))

    def _fold(self, blocks: list[tuple[int, Block]]) -> list[Output]:
        rows = np.array([slot for slot, _ in blocks])
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
        for index, (_, block) in enumerate(blocks):
            node = block.message.node
            if self._settings.smoothing.publish:
                smoothed = report.smoothed_of(index, block, result)
                outputs.append(Output(self._names.node("smoothed", node), smoothed))
            if due[index]:
                message = report.availability_of(
                    index, block, int(at_us[index]), int(said.since_us[index]), result, self._params.features
                )
                outputs.append(Output(self._names.node("availability", node), message))
        return outputs

    def _enqueue(self, state: chain.State, rows: NDArray[np.intp]) -> None:
        """Merge local models one after another, N being the nodes known when each arrived."""
        for index, slot in enumerate(rows):
            self._arrived = max(self._arrived, int(slot) + 1)
            arrival = table.take(state.model, np.array([index]))
            self._queue = flat_queue.update(self._queue, arrival, nodes=self._arrived)

    def _sizes(self, cpus: int, memory_bytes: int) -> list[float]:
        known = {"cpu": float(cpus), "memory": float(memory_bytes)}
        return [known.get(name, 1.0) for name in self._params.features]

    def _sum(self, second: int) -> Output:
        state = self._rows.chain
        silent = self._settings.model.silent_seconds
        alive = state.seen & (np.abs(state.at_us / 1e6 - second) <= silent)
        sizes = self._params.variant.units(state.sizes)
        if self._queue is not None:
            total = flat_queue.moment(self._queue) * int(alive.sum())
        else:
            total = keyed_sum.total(state.moment, sizes, alive)
        model = report.model_of(
            second,
            self.number,
            self._params.features,
            total,
            _sum_in_order(state.above * state.sizes, alive),
            float(_sum_in_order(state.pods, alive)),
            int(alive.sum()),
        )
        return Output(self._names.of("model", "partition", str(self.number)), model)

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
            "nodes": list(self._slots),
            "boots": self._boots,
            "seqs": self._seqs,
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
        self._boots, self._seqs = list(header["boots"]), list(header["seqs"])
        self._arrived = header["arrived"]
        self._watermark = plan.Watermark(*header["watermark"])
        if header["world"] is not None:
            self._adopt(Model.model_validate(header["world"]))

    def _fingerprint(self) -> str:
        return self._settings.model_dump_json(include={"smoothing", "model", "estimate"})


def _sum_in_order(values: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Sum over the node axis from the first node to the last, whatever the size of the array."""
    kept = values[alive]
    return np.add.accumulate(kept, axis=0)[-1] if len(kept) else np.zeros(values.shape[1:])
