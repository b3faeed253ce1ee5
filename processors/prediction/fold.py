"""One partition's predictions: the fold of telemetry into predicted peaks, reject signals and sums by workload.

A value in the shape of an object, as `processors.partition.partition` is: `fold` takes messages in stream order,
`snapshot` and `restore` turn the state into bytes and back. Blocks of many nodes are worked on together: they wait
until a message comes that needs their result. That is the next block of a node that waits, facts of it, or the end of
a window of the partition's event time; there, what all nodes together have learned comes into force for each of them.
Directions of the nodes of all partitions come back as a message, and are in force from its place in the order on.
So how messages are grouped changes nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from processors import decode
from processors.decode import Block
from processors.forecast import workload
from processors.forecast.sums import Sum, Sums, Workload
from processors.partition import output, plan
from processors.partition.admission import Admission
from processors.partition.arrival import Marks
from processors.partition.output import Output
from processors.prediction import checkpoint, rejects, window
from processors.prediction.check import Check, due
from processors.prediction.histogram.exchange import Koordinator
from processors.prediction.node import Nodes
from processors.prediction.pod import Pods
from processors.prediction.window import Window
from processors.rows import snapshot
from processors.rows.quota import NodeQuota
from processors.rows.silence import silent
from schemas.messages.base import Message
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.prediction import Prediction, Reject, Subspace
from schemas.messages.telemetry import PodUsageBlock
from schemas.settings import Settings
from schemas.subject import Names

FORMAT = 1


class _Pending(NamedTuple):
    """A block that waits to be worked on, and what its node is to be checked for, if for anything."""

    block: Block
    slot: int
    at_us: int
    check: Check | None


class PredictionPartition:
    """State of all nodes of one partition.

    Attributes:
        settings: In force; those that may change may be set between two folds.
        quota: Which nodes may have state.
        withheld: Messages not made because a number in them would be unknown or out of range.
        refused: Index and reason of each message of the last fold that no other fold reads and that is invalid.
    """

    def __init__(self, settings: Settings, number: int, memo: decode.Memo | None = None) -> None:
        """Start without any node; `memo` has what the partition's own fold has decoded."""
        self.settings, self.number, self._memo = settings, number, memo
        self._names = Names(settings.prefix)
        self.withheld = 0
        self.quota = NodeQuota(settings.process, settings.nats.partitions)
        self.refused: list[tuple[int, str]] = []
        self._federation = rejects.Federation(settings, number)
        # Only clocks matter here, and which blocks count: neither workload classes nor smoothing.
        self._admission = Admission(settings.estimate.model_copy(update={"classes": 0}), 0)
        self._used = Marks()
        self._windows: dict[str, Window] = {}
        self._last_checks: dict[str, int] = {}
        self._watermark = plan.Watermark()
        self._pods = Pods(self.quota)
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

    def adopt(self, node: str, model: Koordinator) -> bool:
        """Replace a node's or pod's histograms by others; False: it is not known here."""
        return checkpoint.adopt(self._nodes, self._pods, node, model)

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> list[Output]:
        """Fold messages, (stored subject, payload) in stream order; the partition's own fold refuses bad ones.

        Returns:
            What to publish, in the order of what it came of.
        """
        items, refused = decode.messages(messages, "", self._federation.subject, take=self._memo)
        self.refused = [(index, reason) for index, reason in refused if messages[index][0] == self._federation.subject]
        outputs: list[Output] = []
        usage = window.usage_of([item for item in items if isinstance(item, Block)])
        for item in items:
            if isinstance(item, Block):
                used = next(usage)
                second = self._watermark.second
                block = self._admission.believed(item, second) if self.quota.admits(item, second) else None
                if block is not None:
                    outputs += self._block(block, used)
            elif not self.quota.admits(item, self._watermark.second):
                continue
            elif isinstance(item, PodUsageBlock):
                self._use(self._admission.possible(item))
            elif isinstance(item, PodFacts):
                self._learn(item)
            elif isinstance(item, Subspace):
                outputs += self._flush()
                self._federation.adopt(self._nodes.rejects, item)
            elif isinstance(item, NodeFacts):
                outputs += self._flush() if item.node in self._pending else []
                self._admission.admit(item, self._watermark.second)
                self._nodes.allocatable.learn(item)
                if item.deleted and item.node not in self._windows:
                    self._sums.forget({item.node}, ())
        return outputs + self._flush()

    def _learn(self, facts: PodFacts) -> None:
        if facts.node != UNBOUND and self.settings.predict.enabled:
            self._pods.learn(facts, self._watermark.second)
        if facts.node != UNBOUND and self.settings.forecast.enabled:
            self._sums.learn(facts)

    def _use(self, block: PodUsageBlock) -> None:
        if not self._used.fresh(block.node, block.boot, block.seq, self._admission.newest(block.node, block.boot)):
            return
        if self.settings.forecast.enabled:
            self._sums.take(block)
        if not self.settings.predict.enabled:
            return
        repeat = self._pods.repeat(block, self._watermark.second)
        used = [] if repeat is not None else list(self._pods.use(block, self._watermark.second))
        if (window_now := self._windows.get(block.node)) is not None:
            window_now.take(block, repeat, used)

    def _block(self, block: Block, usage: tuple[float | None, float | None]) -> list[Output]:
        head = block.message
        node, predict = head.node, self.settings.predict
        outputs = self._flush() if node in self._pending else []
        watermark = self._watermark.seen(head.at_us // 1_000_000, node)
        if watermark is not self._watermark:
            outputs += self._advance(watermark, block.message_index)
        at_us = head.at_us + head.step_us * (head.samples - 1)
        second, window_now = at_us // 1_000_000, self._windows.get(node)
        check = due(at_us, window_now, self._last_checks.get(node), partial(self._pods.of, node), predict)
        self._last_checks[node] = second // predict.check_seconds
        if window_now is None or window_now.number != second // predict.update_seconds:
            window_now = self._windows[node] = Window(second // predict.update_seconds)
        self._pending[node] = _Pending(block, self._nodes.slot(node), at_us, check)
        cpu, memory = usage
        window_now.node.add(
            None if cpu is None else cpu * head.cpus, None if memory is None else memory * head.memory_bytes
        )
        return outputs

    def _advance(self, watermark: plan.Watermark, message_index: int) -> list[Output]:
        """Move the partition's event time on; at the end of a window put in force what was learned in it."""
        before, self._watermark = self._watermark.second, watermark
        now, every = watermark.second, self.settings.predict.update_seconds
        if now == before:
            return []
        outputs: list[Output] = []
        ended = self._sums.end(before) if before and self.settings.forecast.enabled else None
        if ended is not None:
            outputs += self._flush()
            outputs += self._workloads(*ended, message_index)
        if (merge_second := self._federation.due(before, now)) is not None:
            outputs += self._flush()
            first = merge_second - self.settings.model.silent_seconds
            live = self._nodes.slots({node for node, heard in self._admission.heard().items() if heard >= first})
            if live.size:
                fields = self._federation.merged(self._nodes.rejects, live, merge_second)
                outputs += self._publish(self._federation.partition_subject, Subspace, fields, message_index)
        if before // every == now // every:
            return outputs
        outputs += self._flush()
        oldest = partial(watermark.oldest, round(self.settings.predict.expiration_seconds), self.nodes)
        passed = watermark.passed(now, self.nodes)
        gone = silent(self._admission.heard(), self.quota.deleted, passed)
        self.quota.forget(passed)
        self._admission.forget(gone, now)
        described = self._admission.described
        self._sums.forget(gone, described)
        self._used.forget(gone)
        for by_node in (self._windows, self._last_checks):
            for name in gone & by_node.keys():
                del by_node[name]
        self._nodes.keep(gone, self._pods, self._windows.keys() | described, oldest)
        self._used.keep(self._windows.keys() | self._pods.nodes)
        self._nodes.adopt(self._pods, now, self.settings.predict)
        return outputs

    def _workloads(self, at_us: int, sums: Mapping[Workload, Sum], message_index: int) -> list[Output]:
        subject = self._names.of("workloads", "partition", str(self.number))
        try:
            return [Output(subject, message, message_index) for message in workload.messages(self.number, at_us, sums)]
        except ValidationError:
            self.withheld += 1
            return []

    def _flush(self) -> list[Output]:
        """Work on the blocks that wait."""
        pending, self._pending = list(self._pending.values()), {}
        outputs = self._rejects(pending) if self.settings.reject.enabled else []
        outputs += self._predictions([block for block in pending if block.check is not None])
        return sorted(outputs, key=lambda output: output.index)

    def _rejects(self, pending: Sequence[_Pending]) -> list[Output]:
        outputs: list[Output] = []
        blocks = [(waiting.block, waiting.slot, waiting.at_us) for waiting in pending]
        for index, fields in rejects.fold(self._nodes.rejects, blocks, self.settings.reject, self._federation.shared):
            outputs += self._publish(self._names.node("reject", fields["node"]), Reject, fields, index)
        return outputs

    def _predictions(self, checked: Sequence[_Pending]) -> list[Output]:
        if not checked:
            return []
        heads = [pending.block.message for pending in checked]
        slots = np.array([pending.slot for pending in checked], dtype=np.intp)
        checks = [pending.check for pending in checked if pending.check is not None]
        self._nodes.extend(self._pods.slots)
        outputs: list[Output] = []
        for index, fields in self._nodes.predict(heads, slots, checks, self.settings.predict):
            subject = self._names.node("prediction", heads[index].node)
            outputs += self._publish(subject, Prediction, fields, checked[index].block.message_index)
        return outputs

    def _publish(self, subject: str, form: type[Message], fields: dict[str, Any], message_index: int) -> list[Output]:
        """Make a message; one that cannot be made is withheld and counted, and harms no other node."""
        published = output.make(subject, form, fields, message_index)
        self.withheld += published is None
        return [] if published is None else [published]

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        windows, arrays = window.dump(self._windows)
        header = {
            "format": FORMAT,
            "settings": checkpoint.fingerprint(self.settings),
            "withheld": self.withheld,
            "quota": self.quota.dump(),
            "admission": self._admission.dump(),
            "used": self._used.dump(),
            "windows": windows,
            "looked": self._last_checks,
            "watermark": astuple(self._watermark),
            "pods": self._pods.dump(),
            "slots": self._pods.slots,
            "made": self._pods.made,
            "sums": self._sums.dump(),
        }
        names, more = self._nodes.dump(self._pods.slots)
        form, directions = self._federation.dump()
        return snapshot.pack(header | {"nodes": names} | form, checkpoint.stored(arrays | more | directions))

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or were made by another version.
        """
        try:
            header, kept = snapshot.unpack(body)
            arrays = checkpoint.read(kept)
            if header["format"] != FORMAT:
                raise ValueError(f"state has format {header['format']}, this program knows {FORMAT}")
            self._admission.load(header["admission"])
            self._used.load(header["used"])
            self._windows = window.load(header["windows"], arrays)
            self._last_checks = dict(header["looked"])
            self._watermark = plan.Watermark.of(header["watermark"])
            self._pods.load(header["pods"], header["slots"], header.get("made", {}))
            horizon_seconds = checkpoint.horizon_seconds(header["settings"])
            self._nodes.load(header["nodes"], arrays, self._pods.slots, horizon_seconds)
            self._sums.load(header["sums"])
            self._federation.load(header, arrays, self._nodes.rejects)
            self.withheld = header["withheld"]
            nodes, allocatable = header["admission"]["known"], header["nodes"]["allocatable"]
            self.quota.load(header.get("quota"), nodes, allocatable, self._watermark.second)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error
