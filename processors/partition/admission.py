"""Which messages of a node are folded and at which time: each second once, in order, and events laid on its clock.

Messages are admitted one by one in stream order, so how they are grouped changes nothing.
"""

import math
from collections.abc import KeysView
from dataclasses import dataclass
from typing import Any

from processors.decode import Block, Head, Item, Summary
from processors.estimation import churn, size
from processors.estimation.churn import Windows
from processors.estimation.size import Capacity
from processors.partition import arrival, clock
from processors.partition.arrival import Arrival
from processors.partition.clock import Clock
from processors.partition.plan import Entry, Faults
from processors.workload.pod_class import Facts, Tally
from schemas.boot import cut
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock, Size
from schemas.sections.estimation import Estimate

_SECOND_US = 1_000_000
_FORGET_SECONDS = 3600
_BLOCKS = (Block, Summary)


@dataclass(slots=True)
class _Record:
    """A node: which blocks have come, its clock if that is known, and the event second of its last block."""

    arrival: Arrival
    clock: Clock | None
    heard: int


class Admission:
    """Blocks folded, clocks, windows of churn, and facts of pods; of every node of a partition.

    A node has a record from its first block with its size on, under the boot of the newest one; boots are compared by
    the digits that every sender sends. `ignored` counts events that open no window: of an unknown node or boot, or more
    than a minute away from its newest block; and blocks without the size of an unknown node, or without the time of an
    unknown boot.
    """

    def __init__(self, estimate: Estimate, reach: int) -> None:
        """Start without any node; `reach` is how many samples smoothing carries on."""
        self._settle_us = round(estimate.settle_seconds * _SECOND_US)
        self._classes, self._reach = estimate.classes, reach
        self._records: dict[str, _Record] = {}
        self._pod_marks: dict[str, tuple[str, int]] = {}
        self._windows: dict[str, Windows] = {}
        self._facts = Facts()
        self._allocatable: dict[str, tuple[float, float, float]] = {}
        self._capacity: dict[str, Capacity] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self.ignored = 0

    def admit(self, item: Item, second: int) -> Entry | Tally | None:
        """Return what is to be folded of a message that comes in an event second of the partition, if anything."""
        if isinstance(item, _BLOCKS):
            return self._block(item, second)
        if isinstance(item, ContainerEvent):
            self._event(item)
        elif isinstance(item, NodeFacts):
            self._describe(item)
        elif not self._classes:
            return None
        elif isinstance(item, PodUsageBlock):
            return self._usage(item)
        elif isinstance(item, PodFacts) and item.node != UNBOUND:
            self._facts.learn(item)
        return None

    def believed(self, block: Block, second: int) -> Block | None:
        """Return a block with the time and size that `admit` gives it, without what else an entry says; None: too late.

        Call either for a node's blocks.
        """
        arrived = self._arrived(block, second)
        counted = None if arrived is None else self._believed(arrived)[0]
        return counted if isinstance(counted, Block) else None

    def possible(self, block: PodUsageBlock) -> PodUsageBlock:
        """Return a block in which pods take no more than their node has; of an unknown one, than any node can have."""
        limit = self._sizes.get(block.node) or size.largest(self._capacity.get(block.node))
        return size.within(block, *limit)

    def newest(self, node: str, boot: str) -> int | None:
        """Return the node's newest second if it is of this boot."""
        record = self._records.get(node)
        return record.arrival.seq if record is not None and record.arrival.boot == cut(boot) else None

    def heard(self) -> dict[str, int]:
        """Return the event second in which the last block of each node came."""
        return {node: record.heard for node, record in self._records.items()}

    @property
    def described(self) -> KeysView[str]:
        """The nodes that Kubernetes has, whether or not they report; it says no fact twice, so these stay known."""
        return self._capacity.keys()

    def forget(self, nodes: set[str], second: int) -> None:
        """Drop what nodes that are gone have reported, and facts of their pods unless Kubernetes has the node."""
        for node in nodes:
            self._records.pop(node, None)
            self._pod_marks.pop(node, None)
            self._windows.pop(node, None)
            self._sizes.pop(node, None)
        present = self._records.keys() | self.described
        self._facts.forget(nodes - self.described, present, second * _SECOND_US, _FORGET_SECONDS * _SECOND_US)

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "known": {node: [record.arrival, record.clock, record.heard] for node, record in self._records.items()},
            "pod_marks": self._pod_marks,
            "windows": self._windows,
            "allocatable": self._allocatable,
            "capacity": self._capacity,
            "sizes": self._sizes,
            "facts": self._facts.dump(),
            "ignored": self.ignored,
        }

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned."""
        self._records = {
            node: _Record(_cut(Arrival(*arrived)), Clock(*clocked) if clocked else None, heard)
            for node, (arrived, clocked, heard) in dumped["known"].items()
        }
        self._pod_marks = {node: (cut(boot), seq) for node, (boot, seq) in dumped["pod_marks"].items()}
        self._windows = {
            node: tuple((first, last) for first, last in windows) for node, windows in dumped["windows"].items()
        }
        self._allocatable = {node: (cpu, memory, pods) for node, (cpu, memory, pods) in dumped["allocatable"].items()}
        self._capacity = {node: Capacity(*sizes) for node, sizes in dumped.get("capacity", {}).items()}
        self._sizes = {node: (cpus, memory) for node, (cpus, memory) in dumped.get("sizes", {}).items()}
        self._facts.load(dumped["facts"])
        self.ignored = dumped["ignored"]

    def _block(self, block: Block | Summary, second: int) -> Entry | None:
        """Admit a block if nothing newer of its node was folded."""
        arrived = self._arrived(block, second)
        return None if arrived is None else self._entry(arrived)

    def _arrived(self, block: Block | Summary, second: int) -> Block | Summary | None:
        """Return a block with its time corrected, if nothing newer of its node was folded."""
        record, boot = self._records.get(block.message.node), cut(block.message.boot)
        if record is not None and isinstance(block, Block) and _goes_on(record, block.message, boot, second):
            record.arrival, record.heard = arrival.ahead(record.arrival, block.message.seq), second
            return block
        timed = True
        if isinstance(block, Summary):
            # A new boot has another clock. A block of the boot before needs none: it is late.
            clocked = (
                record is not None and record.clock is not None and boot in (record.arrival.boot, record.arrival.before)
            )
            if (record is None and block.edge.size is None) or (not clocked and block.edge.at_us is None):
                self.ignored += 1  # a block with the node's size and its time follows soon
                return None
            timed = block.edge.at_us is not None
            block = _timed(block, record.clock if record else None)
        head, node = block.message, block.message.node
        apart = record is not None and record.clock is not None and clock.apart(record.clock, head.seq, head.at_us)
        arrived, fresh = arrival.update(record.arrival if record else None, boot, head.seq, apart=apart, timed=timed)
        if record is None:
            clocks = clock.update(None, head.seq, head.at_us, second)
            self._records[node] = _Record(arrived, clocks, second)
        else:
            rebooted = arrived.boot != record.arrival.boot or arrived.lines != record.arrival.lines
            record.arrival, record.heard = arrived, second
            if not fresh:
                return None
            if rebooted:
                self._windows.pop(node, None)
                jumps = record.clock.jumps if record.clock else 0
                clocks = clock.update(None, head.seq, head.at_us, second)._replace(jumps=jumps)
            else:
                clocks = clock.update(record.clock, head.seq, head.at_us, second)
            record.clock = clocks
        at_us = clock.at_of(clocks, head.seq, head.at_us)
        if at_us != head.at_us:
            block = block._replace(message=head._replace(at_us=at_us))
        return block

    def _entry(self, block: Block | Summary) -> Entry:
        """Return a block that has arrived, with what else is known of its node."""
        block, oversized = self._believed(block)
        head, node = block.message, block.message.node
        faults, allocatable = _faults(self._records[node]), self._allocatable.get(node)
        if allocatable is not None and (waiting := self._facts.waiting(node)):  # which the kubelet counts, too
            allocatable = *allocatable[:2], max(allocatable[2] - waiting, 0.0)
        if node not in self._windows:
            return Entry(node, block, False, faults, allocatable, oversized)
        begin = head.seq * _SECOND_US
        carried = begin - self._reach * head.step_us
        stirred = self._stirred(node, carried, begin + head.samples * head.step_us)
        return Entry(node, block, stirred, faults, allocatable, oversized)

    def _believed(self, block: Block | Summary) -> tuple[Block | Summary, bool]:
        """Return a block with a size that its node can have, and whether it claimed another."""
        claimed = block.message if isinstance(block, Block) else block.edge.size
        if claimed is None:
            return block, False
        node, wanted = block.message.node, (claimed.cpus, claimed.memory_bytes)
        if self._sizes.get(node) == wanted and node not in self._capacity:
            return block, False  # as the second before; what was believed then is believed now
        cpus, memory_bytes = self._sizes[node] = size.bounded(*wanted, self._capacity.get(node))
        if (cpus, memory_bytes) == wanted:
            return block, False
        if isinstance(block, Block):
            return block._replace(message=block.message._replace(cpus=cpus, memory_bytes=memory_bytes)), True
        believed = Size(
            cpus=cpus, memory_bytes=memory_bytes, pressure=bool(block.edge.size and block.edge.size.pressure)
        )
        return block._replace(edge=block.edge.model_copy(update={"size": believed})), True

    def _describe(self, facts: NodeFacts) -> None:
        """Record what Kubernetes lets pods have of a node; what the facts leave out is unlimited."""
        if facts.deleted:
            self._allocatable.pop(facts.node, None)
            self._capacity.pop(facts.node, None)
            return
        cpu, memory, pods = (facts.allocatable.get(name, math.nan) for name in ("cpu", "memory", "pods"))
        self._allocatable[facts.node] = (cpu, memory, pods)
        self._capacity[facts.node] = Capacity(facts.capacity.get("cpu", 0.0), facts.capacity.get("memory", 0.0))

    def _usage(self, block: PodUsageBlock) -> Tally | None:
        boot = cut(block.boot)
        newest = self.newest(block.node, boot)
        if newest is None or abs(block.seq - newest) * _SECOND_US > churn.FAR_US:
            return None
        marked_boot, last = self._pod_marks.get(block.node, ("", -1))
        # A mark far ahead of the node's blocks is of a line that it has left.
        if marked_boot == boot and block.seq <= last <= newest + churn.FAR_US // _SECOND_US:
            return None
        self._pod_marks[block.node] = (boot, block.seq)
        clocks = self._records[block.node].clock
        at_us = block.at_us if clocks is None else clock.at_of(clocks, block.seq, block.at_us)
        return Tally(block.node, at_us, self.possible(block), self._facts.group(block))

    def _event(self, event: ContainerEvent) -> None:
        if not churn.stirs(event):
            return
        newest = self.newest(event.node, event.boot)
        if newest is None or abs(event.boottime_us - (newest + 1) * _SECOND_US) > churn.FAR_US:
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


def _goes_on(record: _Record, head: Head, boot: str, second: int) -> bool:
    """Tell whether a block comes behind the newest one and leaves the clock as it is, as nearly every block does."""
    arrived, clocks = record.arrival, record.clock
    ahead = boot == arrived.boot and head.seq > arrived.seq
    return ahead and clocks is not None and clock.is_still(clocks, head.seq, head.at_us, second)


def _faults(record: _Record) -> Faults | None:
    arrived, clocks = record.arrival, record.clock
    if clocks is None:
        return None
    error_us = clock.error_us(clocks)
    if arrived.missing or arrived.doubled or arrived.late or clocks.jumps or error_us is not None:
        return Faults(arrived.doubled, arrived.late, arrived.missing, clocks.jumps, error_us, arrived.shared)
    return None


def _cut(arrived: Arrival) -> Arrival:
    """Return what an older program stored, with boots as they are compared now."""
    boot, before = cut(arrived.boot), cut(arrived.before)
    arrived = arrived._replace(boot=boot, before="" if before == boot else before)
    if not arrived.begin and arrived.missing > arrival.SPAN:
        # It does not say where the gap is: all that is missing may be one jump.
        return arrived._replace(left=arrived.first, begin=arrived.seq)
    return arrived


def _timed(block: Summary, clocks: Clock | None) -> Summary:
    """Return a block with its time by the wall clock, if it has none."""
    if block.edge.at_us is not None or clocks is None:
        return block
    return block._replace(message=block.message._replace(at_us=clock.carried(clocks, block.message.seq)))
