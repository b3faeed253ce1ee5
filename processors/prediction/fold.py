"""One partition's outlook: the fold of telemetry into predictions, reject signals and sums by workload.

A value in the shape of an object, as `processors.partition.partition` is: `fold` takes messages in stream order,
`snapshot` and `restore` turn the state into bytes and back. Blocks of many nodes are worked on together: they wait
until a message comes that needs what they make. That is the next block of a node that waits, facts of it, or the end of
a window of the partition's event time; there, what all nodes together have learned comes into force for each of them.
So how messages are grouped changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from processors import decode
from processors.decode import Block
from processors.forecast import workload
from processors.forecast.sums import Sum, Sums, Workload
from processors.partition import output, plan
from processors.partition.admission import Admission
from processors.partition.output import Output
from processors.partition.plan import Entry
from processors.prediction import checkpoint, rejects, window
from processors.prediction.histogram.exchange import Koordinator
from processors.prediction.node import Closed, Look, Nodes
from processors.prediction.pod import Pods, departed
from processors.prediction.window import Window
from processors.rows import snapshot
from schemas.boot import cut
from schemas.messages.base import Message
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.prediction import Prediction, Reject
from schemas.messages.telemetry import PodUsageBlock
from schemas.settings import Settings
from schemas.subject import Names

FORMAT = 1
_USAGE = [decode.COLUMNS["cpu_util"], decode.COLUMNS["memory_util"]]
_FORM = {"horizon_seconds"}


class _Pending(NamedTuple):
    """A block that waits to be worked on, and what of the node's pods it was to look at, if at anything."""

    block: Block
    slot: int
    at_us: int
    look: Look | None


class Outlook:
    """State of all nodes of one partition.

    Attributes:
        settings: In force; those that may change may be set between two folds.
        withheld: Messages not made because a number cannot be said.
    """

    def __init__(self, settings: Settings, number: int) -> None:
        self.settings, self.number = settings, number
        self._names = Names(settings.prefix)
        self.withheld = 0
        # Workload classes and smoothing are not for us; only clocks, and which blocks count.
        self._admission = Admission(settings.estimate.model_copy(update={"classes": 0}), 0)
        self._used: dict[str, tuple[str, int]] = {}
        self._windows: dict[str, Window] = {}
        self._looked: dict[str, int] = {}
        self._watermark = plan.Watermark()
        self._pods = Pods()
        self._nodes = Nodes(settings)
        self._sums = Sums(seconds=settings.forecast.seconds)
        self._pending: dict[str, _Pending] = {}

    @property
    def nodes(self) -> int:
        """Number of nodes known."""
        return len(self._windows)

    def models(self) -> Iterator[tuple[str, Koordinator]]:
        """Yield the node and the histograms of every node, group of its pods, and pod."""
        return checkpoint.listed(self._nodes, self._pods)

    def adopt(self, node: str, found: Koordinator) -> bool:
        """Put histograms in the place of a node's or pod's own; False: it is not known here."""
        return checkpoint.adopt(self._nodes, self._pods, node, found)

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> list[Output]:
        """Fold messages, (stored subject, payload) in stream order; the partition's own fold refuses what is of no use.

        Returns:
            What to publish, in the order of what it came of.
        """
        items, _ = decode.messages(messages, "")
        outputs: list[Output] = []
        usage = _usage([item for item in items if isinstance(item, Block)])
        for item in items:
            if isinstance(item, Block):
                used = next(usage)
                entry = self._admission.admit(item, self._watermark.second)
                if isinstance(entry, Entry) and isinstance(entry.block, Block):
                    outputs += self._block(entry.block, used)
            elif isinstance(item, PodUsageBlock):
                self._use(item)
            elif isinstance(item, PodFacts):
                if item.node != UNBOUND:
                    if self.settings.predict.enabled:
                        self._pods.learn(item, self._watermark.second)
                    if self.settings.forecast.enabled:
                        self._sums.learn(item)
            elif isinstance(item, NodeFacts):
                outputs += self._flush() if item.node in self._pending else []
                self._nodes.learn(item)
        return outputs + self._flush()

    def _use(self, block: PodUsageBlock) -> None:
        boot, (last_boot, last) = cut(block.boot), self._used.get(block.node, ("", -1))
        if boot == last_boot and block.seq <= last:
            return
        self._used[block.node] = boot, block.seq
        if self.settings.forecast.enabled:
            self._sums.take(block)
        if not self.settings.predict.enabled:
            return
        known = self._windows.get(block.node)
        for pod, cpu, memory in self._pods.use(block, self._watermark.second):
            if known is not None:
                known.add_pod(pod.uid, pod.priority, cpu, memory)
        if known is not None:
            known.told += 1

    def _block(self, block: Block, usage: tuple[float | None, float | None]) -> list[Output]:
        head = block.message
        outputs = self._flush() if head.node in self._pending else []
        outputs += self._advance(head.at_us // 1_000_000, block.place)
        at_us = head.at_us + head.step_us * (head.samples - 1)
        look = self._look(head.node, at_us)
        self._pending[head.node] = _Pending(block, self._nodes.slot(head), at_us, look)
        cpu, memory = usage
        self._windows[head.node].node.add(
            None if cpu is None else cpu * head.cpus, None if memory is None else memory * head.memory_bytes
        )
        return outputs

    def _advance(self, second: int, place: int) -> list[Output]:
        """Move the partition's event time on; at the end of a window put in force what was learned in it."""
        before, self._watermark = self._watermark.second, self._watermark.seen(second)
        now, every = self._watermark.second, self.settings.predict.update_seconds
        outputs: list[Output] = []
        ended = self._sums.end(before) if before and before != now and self.settings.forecast.enabled else None
        if ended is not None:
            outputs += self._flush()
            outputs += self._workloads(*ended, place)
        if before // every == now // every:
            return outputs
        outputs += self._flush()
        gone = self._admission.silent(now, self._watermark.since)
        self._admission.forget(gone, now)
        self._sums.forget(gone)
        for known in (self._used, self._windows, self._looked):
            for name in gone & known.keys():
                del known[name]
        oldest = now - round(self.settings.predict.expiration_seconds)
        # Of what was before the event time began, or began anew, nobody knows how long ago it was.
        self._nodes.keep(gone, self._pods, self._windows, oldest if self._watermark.since < oldest else 0)
        self._used = {node: mark for node, mark in self._used.items() if node in self._windows or self._pods.of(node)}
        self._nodes.adopt(self._pods, now, self.settings.predict)
        return outputs

    def _workloads(self, at_us: int, sums: Mapping[Workload, Sum], place: int) -> list[Output]:
        subject = self._names.of("workloads", "partition", str(self.number))
        try:
            return [Output(subject, message, place) for message in workload.messages(self.number, at_us, sums)]
        except ValidationError:
            self.withheld += 1
            return []

    def _look(self, name: str, at_us: int) -> Look | None:
        """Return what is to be looked at: a window that is over, or, now and then, whether something has changed."""
        predict, second = self.settings.predict, at_us // 1_000_000
        number, known = second // predict.update_seconds, self._windows.get(name)
        look = second // predict.check_seconds
        last, self._looked[name] = self._looked.get(name, look), look
        if known is None or number != known.number:
            self._windows[name] = Window(number)
        if known is None or (number == known.number and look == last) or not predict.enabled:
            return None
        pods = self._pods.of(name)
        closed = None
        if number != known.number:
            rows = [pods[uid].row if uid in pods else departed(known.priorities[uid]) for uid in known.pods]
            closed = Closed(known.node, bool(known.told), list(known.pods.values()), rows)
        return Look(at_us, closed, [pod.row for pod in pods.values() if pod.there])

    def _flush(self) -> list[Output]:
        """Work on the blocks that wait."""
        pending, self._pending = list(self._pending.values()), {}
        outputs = self._rejects(pending) if self.settings.reject.enabled else []
        outputs += self._predictions([one for one in pending if one.look is not None])
        return sorted(outputs, key=lambda output: output.place)

    def _rejects(self, pending: Iterable[_Pending]) -> list[Output]:
        outputs: list[Output] = []
        by_length: dict[int, list[_Pending]] = {}
        for one in pending:
            by_length.setdefault(one.block.message.samples, []).append(one)
        for same in by_length.values():
            slots = np.array([one.slot for one in same], dtype=np.intp)
            at_us = np.array([one.at_us for one in same])
            blocks = decode.samples([one.block for one in same])
            said, since, due = rejects.update(self._nodes.rejects, slots, blocks, at_us, self.settings.reject)
            heads = [one.block.message for one in same]
            told = rejects.fields(np.flatnonzero(due).tolist(), heads, at_us, said, since, self.settings.reject)
            for index, fields in told:
                outputs += self._say("reject", Reject, fields, same[index].block.place)
        return outputs

    def _predictions(self, looking: Sequence[_Pending]) -> list[Output]:
        if not looking:
            return []
        names = [one.block.message.node for one in looking]
        slots = np.array([one.slot for one in looking], dtype=np.intp)
        looks = [one.look for one in looking if one.look is not None]
        self._nodes.extend(self._pods.slots)
        outputs: list[Output] = []
        for index, fields in self._nodes.predict(names, slots, looks, self.settings.predict):
            outputs += self._say("prediction", Prediction, fields, looking[index].block.place)
        return outputs

    def _say(self, kind: str, form: type[Message], fields: dict[str, Any], place: int) -> list[Output]:
        """Make a message; one that cannot be made is withheld and counted, and harms no other node."""
        said = output.make(self._names.node(kind, fields["node"]), form, fields, place)
        self.withheld += said is None
        return [] if said is None else [said]

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        windows, arrays = window.dump(self._windows)
        header = {
            "format": FORMAT,
            "settings": self._fingerprint(),
            "withheld": self.withheld,
            "admission": self._admission.dump(),
            "used": self._used,
            "windows": windows,
            "looked": self._looked,
            "watermark": [self._watermark.second, self._watermark.far, self._watermark.since],
            "pods": self._pods.dump(),
            "slots": self._pods.slots,
            "sums": self._sums.dump(),
        }
        names, more = self._nodes.dump(self._pods.slots)
        return snapshot.pack(header | {"nodes": names}, arrays | more)

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or were made by another version or under settings that change the
                state's shape or meaning.
        """
        try:
            header, arrays = snapshot.unpack(body)
            if header["format"] != FORMAT:
                raise ValueError(f"state has format {header['format']}, this program knows {FORMAT}")
            if header["settings"] != self._fingerprint():
                raise ValueError("state was made under other settings of predict or reject")
            self._admission.load(header["admission"])
            self._used = {node: (boot, seq) for node, (boot, seq) in header["used"].items()}
            self._windows = window.load(header["windows"], arrays)
            self._looked = dict(header["looked"])
            second, far, since = header["watermark"]
            self._watermark = plan.Watermark(second, far, since)
            self._pods.load(header["pods"], header["slots"])
            self._nodes.load(header["nodes"], arrays, self._pods.slots)
            self._sums.load(header["sums"])
            self.withheld = header["withheld"]
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error

    def _fingerprint(self) -> str:
        # What may change while it runs is no part of it, or each change would void the state.
        parts: Any = {"predict": _FORM}
        return self.settings.model_dump_json(include=parts)


def _usage(blocks: Sequence[Block]) -> Iterator[tuple[float | None, float | None]]:
    """Yield the mean share of CPU and of memory of each block; None: not known."""
    by_form: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        by_form.setdefault(id(block.form), []).append(index)
    found: list[tuple[float | None, float | None]] = [(None, None)] * len(blocks)
    for indices in by_form.values():
        values = decode.samples([blocks[index] for index in indices])[:, :, _USAGE]
        known = ~np.isnan(values)
        counts = known.sum(axis=1)
        sums = np.where(known, values, 0.0).sum(axis=1)
        means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
        for index, (cpu, memory) in zip(indices, means.tolist(), strict=True):
            found[index] = None if cpu != cpu else cpu, None if memory != memory else memory  # noqa: PLR0124 # NaN
    return iter(found)
