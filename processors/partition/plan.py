"""In which order messages are folded, and when sums are due: the part that handles messages one by one.

A tick holds messages in stream order. Blocks that may be folded together form a round: at most one of each node,
all of the same number of samples, with no global model and no due sum between them. A node's pod usage is learned
before or after its block of the round, as it came in the stream; nodes do not depend on each other. Sums of the nodes
are due when the partition's event second moves on, before the message that moves it; so they depend on the order in
the stream and on nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from processors.decode import Block, Item, Summary
from processors.rows.silence import Passed
from processors.workload.pod_class import Tally
from schemas.messages.estimate import Model

_FAR_SECONDS = 60
_AGREEING = 3
_ALONE = 60
_PAIR = 2  # nodes: where one falls silent, the other alone attests the time
_LATELY = 0.5  # of `silent_seconds`, so that a right clock's block that came late does not count for longer
_OLDER = 2  # numbers that the oldest program stored


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event second of a partition.

    One node with a wrong clock must not move it: a block more than a minute away counts only once it is the third
    such block in a row, and they are of several nodes. Where no other node reports, three of one do; where others did,
    it takes 60 of one in a row, so that a node that is left alone is followed in the end. A node can send these in a
    burst; so where one alone has moved the second by more than a minute, silence of the others counts from there.

    Attributes:
        second: The event second; 0: there is none yet.
        far: Blocks in a row that were more than a minute away.
        since: Where it began, or began again after such blocks, or where a second node came to agree with what one had
            moved by more than a minute while blocks were far away; the partition has no record of earlier blocks.
        node: Node of the blocks that were not far away.
        mixed: They are of several nodes.
        astray: Node of the first block that was far away, of those in a row.
        several: Those in a row are of several nodes.
        mover: Node that has moved the second.
        attested: The second when a block of another node than that was last not far away.
        joint: Where it began, or began again after one node alone had moved it by more than a minute.
        strayed: The second when a block was last far away.
    """

    second: int = 0
    far: int = 0
    since: int = 0
    node: str = ""
    mixed: bool = False
    astray: str = ""
    several: bool = False
    mover: str = ""
    attested: int = 0
    joint: int = 0
    strayed: int = 0

    @classmethod
    def of(cls, stored: Sequence[Any]) -> "Watermark":
        """Return what a checkpoint stores of it; an older program stored the first numbers alone.

        Raises:
            ValueError: It is none.
        """
        if not all(isinstance(number, int) for number in stored[:3]) or len(stored) < _OLDER:
            raise ValueError(f"state has {stored!r} as its watermark")
        watermark = cls(*stored)
        if watermark.joint:
            return watermark
        return replace(watermark, attested=watermark.second, joint=watermark.since)

    def begun(self, nodes: int) -> int:
        """Return since when a partition of so many nodes has seen event time pass; of more than two, several have."""
        return self.since if nodes <= _PAIR else self.joint

    def passed(self, second: int, nodes: int) -> Passed:
        """Return the event time that a partition of so many nodes has seen pass until a second."""
        return Passed(second, self.since, self.begun(nodes), self.attested)

    def oldest(self, seconds: int, nodes: int, node: str) -> int:
        """Return before which second news of a node's pods is older than so many seconds; 0: none is.

        How old it is is unknown if it came before the event time began or began again. What one of several nodes makes
        up ages its own pods alone.
        """
        oldest = self.second - seconds
        return oldest if (self.since if node == self.mover else self.begun(nodes)) < oldest else 0

    def seen(self, second: int, node: str = "") -> "Watermark":
        """Return the watermark after a block of an event second."""
        if self.second and abs(second - self.second) > _FAR_SECONDS:
            return self._strayed(second, node)
        moved, seconded = second > self.second, node != self.mover and self.attested != self.second
        mixed = self.mixed or self.node not in ("", node)
        if not (moved or seconded or self.far or mixed != self.mixed or (node and not self.node)):
            return self
        now, attests = max(self.second, second), node != self.mover
        lone = now - self.attested > _FAR_SECONDS
        begins = attests and lone and self.strayed >= self.attested - _FAR_SECONDS
        attested = now if attests else self.attested
        return Watermark(
            now,
            since=now if begins else self.since or second,
            node=self.node or node,
            mixed=mixed,
            mover=node if moved else self.mover,
            attested=attested,
            joint=now if begins or now - attested > _FAR_SECONDS else self.joint or second,
            strayed=self.strayed,
        )

    def _strayed(self, second: int, node: str) -> "Watermark":
        astray = self.astray if self.far else node
        several = self.far > 0 and (self.several or node != astray)
        alone = not self.mixed and self.node in ("", node)
        if self.far + 1 >= (_AGREEING if several or alone else _ALONE):
            return Watermark(
                second,
                since=second,
                node=node,
                mixed=self.mixed or several,
                mover=node,
                attested=second,
                joint=second,
                strayed=second,
            )
        return replace(self, far=self.far + 1, astray=astray, several=several, strayed=self.second)


def is_live(away: float, heard: int, second: int, silent_seconds: float) -> bool:
    """Tell whether a node, or a partition, counts in the sums of an event second.

    Where clocks are right, the distance of its newest block says for how long it has been silent. A clock that is off
    by up to a minute keeps that distance, and one that is ahead moves the second away from all others; there it counts
    when the block came.

    Args:
        away: Seconds between its newest block and the event second.
        heard: The event second in which that block came.
        second: The event second.
        silent_seconds: As in the settings.
    """
    lately = second - heard <= _LATELY * silent_seconds
    return away <= silent_seconds or (lately and away <= _FAR_SECONDS)


class Faults(NamedTuple):
    """What was wrong with a node's blocks so far, this one included.

    Attributes:
        doubled: Blocks that had come before.
        late: Blocks that came after newer ones.
        missing: Seconds of which no block has come.
        jumps: Times that its wall clock has jumped.
        error_us: How far that clock is off now; None: it is right.
        shared: Two hosts seem to send under its name.
    """

    doubled: int
    late: int
    missing: int
    jumps: int
    error_us: int | None
    shared: bool = False


class Entry(NamedTuple):
    """A block to fold.

    Attributes:
        node: The node.
        block: The block, with its corrected time.
        stirred: By events, containers came or went in it.
        faults: The node's so far; None: there are none.
        allocatable: Cores, bytes and pods that Kubernetes lets pods have; None: not known.
        oversized: The node claims to be larger than it can be; the block has the size that is believed.
    """

    node: str
    block: Block | Summary
    stirred: bool
    faults: Faults | None = None
    allocatable: tuple[float, float, float] | None = None
    oversized: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold these blocks together."""

    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Learn:
    """Learn from these, at most one of each node."""

    tallies: list[Tally]


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum the nodes for this event second, which the message at an index has ended."""

    second: int
    index: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """From here on, this is the global model."""

    model: Model


Step = Fold | Learn | Sum | Adopt


@dataclass(slots=True)
class _Round:
    entries: list[Entry] = field(default_factory=list)
    nodes: set[str] = field(default_factory=set)
    before: list[Tally] = field(default_factory=list)
    after: list[Tally] = field(default_factory=list)

    def add(self, tally: Tally) -> None:
        (self.after if tally.node in self.nodes else self.before).append(tally)

    def full(self, entry: Entry) -> bool:
        """Tell whether a block must wait for the next round."""
        return bool(self.entries) and (
            entry.node in self.nodes or self.entries[0].block.message.samples != entry.block.message.samples
        )

    def steps(self) -> Iterator[Step]:
        yield from _learning(self.before)
        if self.entries:
            yield Fold(self.entries)
        yield from _learning(self.after)


def _learning(tallies: list[Tally]) -> Iterator[Learn]:
    batch: dict[str, Tally] = {}
    for tally in tallies:
        if tally.node in batch:
            yield Learn(list(batch.values()))
            batch = {}
        batch[tally.node] = tally
    if batch:
        yield Learn(list(batch.values()))


def steps(
    items: Iterable[Item],
    watermark: Watermark,
    admit: Callable[[Item, int], Entry | Tally | None],
) -> Iterator[tuple[Step, Watermark]]:
    """Yield what to do, in order, each with the watermark that holds after it.

    Args:
        items: Valid messages in stream order.
        watermark: The partition's, before them.
        admit: Returns what to fold of a message that is no global model: a block, a tally of pod usage, or nothing.
            Called once per message, in order, with the event second before it.
    """
    pending = _Round()
    for item in items:
        if isinstance(item, Model):
            yield from ((step, watermark) for step in pending.steps())
            pending = _Round()
            yield Adopt(item), watermark
            continue
        admitted = admit(item, watermark.second)
        if isinstance(admitted, Tally):
            pending.add(admitted)
        if not isinstance(admitted, Entry):
            continue
        after = watermark.seen(admitted.block.message.at_us // 1_000_000, admitted.node)
        due = watermark.second and after.second != watermark.second
        if due or pending.full(admitted):
            yield from ((step, watermark) for step in pending.steps())
            pending = _Round()
        if due:
            yield Sum(watermark.second, admitted.block.message_index), after
        watermark = after
        pending.entries.append(admitted)
        pending.nodes.add(admitted.node)
    yield from ((step, watermark) for step in pending.steps())
