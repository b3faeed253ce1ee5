"""Which messages of a node are folded: each second once, and events only while they can be laid on its clock.

Everything here is decided message by message in stream order, so it does not depend on how messages are grouped.
"""

from typing import Any

from processors import churn, pod_class
from processors.churn import Windows
from processors.decode import Block
from processors.plan import Entry
from processors.pod_class import Facts, Tally
from schemas.facts import UNBOUND, PodFacts
from schemas.message import Message
from schemas.section import Estimate
from schemas.telemetry import ContainerEvent, PodUsageBlock

_SECOND_US = 1_000_000
_FORGET_US = 3600 * _SECOND_US


class Admission:
    """Marks of what was folded, windows of churn, and facts of pods; of every node of a partition.

    A node is known from its first block of samples on, and by the boot of the newest one. `ignored` counts events
    that open no window: of an unknown node or boot, or more than a minute away from its newest block.
    """

    def __init__(self, estimate: Estimate, reach: int) -> None:
        """Start without any node; `reach` is how many samples smoothing carries on."""
        self._settle_us = round(estimate.settle_seconds * _SECOND_US)
        self._classes, self._reach = estimate.classes, reach
        self._marks: dict[str, tuple[str, int]] = {}
        self._pod_marks: dict[str, tuple[str, int]] = {}
        self._windows: dict[str, Windows] = {}
        self._facts = Facts()
        self.ignored = 0

    def admit(self, item: Block | Message) -> Entry | Tally | None:
        """Return what is to be folded of a message, if anything."""
        if isinstance(item, Block):
            return self._block(item)
        if isinstance(item, ContainerEvent):
            self._event(item)
        elif not self._classes:
            return None
        elif isinstance(item, PodUsageBlock):
            return self._usage(item)
        elif isinstance(item, PodFacts) and item.node != UNBOUND:
            self._facts.learn(item)
        return None

    def forget(self, nodes: set[str], second: int) -> None:
        """Drop nodes that are gone."""
        for node in nodes:
            for known in (self._marks, self._pod_marks, self._windows):
                known.pop(node, None)
        self._facts.forget(nodes, self._marks, second * _SECOND_US, _FORGET_US)

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "marks": self._marks,
            "pod_marks": self._pod_marks,
            "windows": self._windows,
            "facts": self._facts.dump(),
            "ignored": self.ignored,
        }

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned."""
        self._marks = {node: (boot, seq) for node, (boot, seq) in dumped["marks"].items()}
        self._pod_marks = {node: (boot, seq) for node, (boot, seq) in dumped["pod_marks"].items()}
        self._windows = {
            node: tuple((first, last) for first, last in windows) for node, windows in dumped["windows"].items()
        }
        self._facts.load(dumped["facts"])
        self.ignored = dumped["ignored"]

    def _block(self, block: Block) -> Entry | None:
        """Admit a block of samples, unless this second of this boot, or a later one, was folded already."""
        message = block.message
        node = message.node
        boot, seq = self._marks.get(node, ("", -1))
        if boot != message.boot:
            self._windows.pop(node, None)
        elif message.seq <= seq:
            return None
        self._marks[node] = (message.boot, message.seq)
        if node not in self._windows:
            return Entry(node, block, stirred=False)
        begin = message.seq * _SECOND_US
        carried = begin - self._reach * message.step_us
        return Entry(node, block, stirred=self._stirred(node, carried, begin + message.samples * message.step_us))

    def _usage(self, block: PodUsageBlock) -> Tally | None:
        boot, seq = self._marks.get(block.node, ("", -1))
        if boot != block.boot or abs(block.seq - seq) * _SECOND_US > churn.FAR_US:
            return None
        told_boot, told = self._pod_marks.get(block.node, ("", -1))
        if told_boot == block.boot and block.seq <= told:
            return None
        self._pod_marks[block.node] = (block.boot, block.seq)
        begin = block.seq * _SECOND_US - block.span_us
        stirred = block.node in self._windows and self._stirred(block.node, begin, (block.seq + 1) * _SECOND_US)
        return pod_class.tally(block, self._facts, churn=stirred)

    def _event(self, event: ContainerEvent) -> None:
        if not churn.stirs(event):
            return
        boot, seq = self._marks.get(event.node, ("", -1))
        if boot != event.boot or abs(event.boottime_us - (seq + 1) * _SECOND_US) > churn.FAR_US:
            self.ignored += 1
            return
        windows = self._windows.get(event.node, ())
        self._windows[event.node] = churn.opened(windows, event.boottime_us, settle_us=self._settle_us)

    def _stirred(self, node: str, begin_us: int, end_us: int) -> bool:
        windows = churn.recent(self._windows[node], begin_us, settle_us=self._settle_us)
        if windows:
            self._windows[node] = windows
            return churn.covers(windows, begin_us, end_us, settle_us=self._settle_us)
        del self._windows[node]
        return False
