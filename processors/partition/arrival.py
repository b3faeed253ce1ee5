"""Which blocks of a node count: each second of its newest boot once, in order; the rest is counted and left out.

Only the order in which the server has stored the blocks counts. A block behind one that was folded comes too late for
algorithms that go forward in time. Either it was seen before, or it was missing until now; a bit for each of the newest
64 seconds distinguishes the two.

A block cannot be proved, so no block closes the way back. Blocks that continue *another line* are left out at first:
those of the boot before, those between the ends of a long jump, and those whose wall clock is not that of the line
although their seconds are (a virtual machine that was set back). Three of them in a row and in order become the line.
Where two lines go on side by side, two hosts share the name; none of both wins, and it is reported.
"""

from collections.abc import Container
from typing import Any, NamedTuple

from schemas.boot import cut

SPAN = 64
TAKEN = 3  # blocks in a row that make another line the node's
_ALL = (1 << SPAN) - 1
_MOST = 2**53 - 1
_STEP = 2  # seconds between blocks that are in a row
_RIVALS, _RIVAL_SECONDS = 3, 60
_OLDER = 2  # numbers of a mark that an older program stored


class Arrival(NamedTuple):
    """What has come of one node.

    Attributes:
        boot: Its newest boot, as `schemas.boot.cut` returns it.
        seq: Newest block folded of that boot; the seconds since then.
        first: First block folded of it.
        seen: One bit for each of the newest 64 seconds, the lowest for `seq`: 1, its block has come.
        before: The boot before, which does not come back.
        doubled: Blocks left out because they had come before.
        late: Blocks left out because a newer one, or one of a newer boot, had been folded.
        missing: Seconds between blocks of a boot of which none has come, or too late to be remembered.
        left: Newest block before the last jump by more than `SPAN` seconds; -1: none of this boot.
        begin: First block after it. What lies between the two was never folded.
        row: Blocks in a row, and in order, that continue another line.
        other: Newest second of that line; -1: there is none.
        rivals: Blocks that continued another line, each behind the one before it.
        rival_at: `seq` when the last of them came.
        lines: Times that another line became the node's.
    """

    boot: str
    seq: int
    first: int
    seen: int = 1
    before: str = ""
    doubled: int = 0
    late: int = 0
    missing: int = 0
    left: int = -1
    begin: int = 0
    row: int = 0
    other: int = -1
    rivals: int = 0
    rival_at: int = -1
    lines: int = 0

    @property
    def shared(self) -> bool:
        """Whether two hosts seem to send under this name: another line has gone on beside this one until lately."""
        lately = self.rival_at >= 0 and 0 <= self.seq - self.rival_at <= _RIVAL_SECONDS
        return self.rivals >= _RIVALS and lately


def update(
    arrival: Arrival | None, boot: str, seq: int, *, apart: bool = False, timed: bool = True
) -> tuple[Arrival, bool]:
    """Record one block and return whether to fold it.

    Args:
        arrival: What has come before; None: nothing.
        boot: The block's boot as `schemas.boot.cut` returns it.
        seq: Its second.
        apart: Its wall clock is not that of the node's line.
        timed: It says its time. One that does not cannot begin a line.

    >>> first, _ = update(None, "b", 7)
    >>> again, fresh = update(first, "b", 7)
    >>> again.doubled, fresh
    (1, False)
    """
    if arrival is None:
        return Arrival(boot, seq, seq, begin=seq), True
    if boot not in (arrival.boot, arrival.before):
        return _begun(arrival, boot, seq), True
    if boot == arrival.boot and seq > arrival.seq:
        return ahead(arrival, seq), True
    after = _left_out(arrival, boot, seq)
    if boot == arrival.boot and not apart and not arrival.left < seq < arrival.begin:
        return after._replace(row=0), False
    follows = after.other >= 0 and seq - after.other > 0
    row = after.row + 1 if follows and seq - after.other <= _STEP else 1
    rivals = min(after.rivals + (follows and seq - after.other <= SPAN), _MOST)
    after = after._replace(row=row, other=seq, rivals=rivals, rival_at=after.seq)
    if row >= TAKEN and timed:
        return _taken(arrival, after, boot, seq), True
    return after, False


def _begun(arrival: Arrival, boot: str, seq: int) -> Arrival:
    """Return what has come after the first block of another boot."""
    return arrival._replace(
        boot=boot, seq=seq, first=seq, seen=1, before=arrival.boot, left=-1, begin=seq, row=0, other=-1, rival_at=-1
    )


def ahead(arrival: Arrival, seq: int) -> Arrival:
    """Record one block that is to be folded: it is of the newest boot, and newer than its newest block."""
    # Every block comes here, and `_replace` takes four times as long.
    boot, newest, first, seen, before, doubled, late, missing, left, begin, _, *line = arrival
    step = seq - newest
    if step == 1:
        return Arrival(boot, seq, first, (seen << 1 | 1) & _ALL, before, doubled, late, missing, left, begin, 0, *line)
    seen = (seen << step | 1) & _ALL if step < SPAN else 1
    missing = min(missing + step - 1, _MOST)
    left, begin = (newest, seq) if step > SPAN else (left, begin)
    return Arrival(boot, seq, first, seen, before, doubled, late, missing, left, begin, 0, *line)


def _left_out(arrival: Arrival, boot: str, seq: int) -> Arrival:
    """Count a block that is not newer than the newest."""
    if boot != arrival.boot:
        return arrival._replace(late=arrival.late + 1)
    behind = arrival.seq - seq
    bit = 1 << behind if behind < SPAN else 0
    if arrival.seen & bit:
        return arrival._replace(doubled=arrival.doubled + 1)
    # A block older than the bits may have come before, and one before the first was never missing.
    arrived = 1 if bit and seq > arrival.first else 0
    return arrival._replace(seen=arrival.seen | bit, late=arrival.late + 1, missing=arrival.missing - arrived)


def _taken(before: Arrival, after: Arrival, boot: str, seq: int) -> Arrival:
    """Return what has come once another line is the node's; `before` its newest block."""
    missing = before.missing
    if boot == before.boot and 0 <= before.left < seq < before.begin:
        # The jump was none: only what lies between the old line and this block can be missing.
        jumped, since = before.begin - before.left - 1, seq - before.left - TAKEN
        missing = max(0, missing - jumped) + max(0, since)
    return after._replace(
        boot=boot,
        before=before.before if boot == before.boot else before.boot,
        seq=seq,
        first=seq,
        seen=1,
        late=before.late,
        doubled=before.doubled,
        missing=missing,
        left=seq,
        begin=seq,
        row=0,
        other=before.seq if boot != before.boot else -1,
        rival_at=seq,
        lines=before.lines + 1,
    )


class Marks:
    """Which blocks of pod usage of each node have come, by the same rules as its other blocks."""

    def __init__(self) -> None:
        self._nodes: dict[str, Arrival] = {}

    def fresh(self, node: str, boot: str, seq: int, newest: int | None) -> bool:
        """Record one block and return whether it counts.

        Args:
            node: The node.
            boot: Its boot.
            seq: Its second.
            newest: Newest second of the node's other blocks of that boot; None: not known.
        """
        before = self._nodes.get(node)
        if before is not None and newest is not None and before.seq > newest + SPAN:
            before = None  # it is of a line that the node has left
        self._nodes[node], fresh = update(before, cut(boot), seq)
        return fresh

    def forget(self, nodes: Container[str]) -> None:
        """Drop some nodes."""
        self._nodes = {node: arrived for node, arrived in self._nodes.items() if node not in nodes}

    def keep(self, nodes: Container[str]) -> None:
        """Drop all but some nodes."""
        self._nodes = {node: arrived for node, arrived in self._nodes.items() if node in nodes}

    def dump(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return dict(self._nodes)

    def load(self, dumped: dict[str, Any]) -> None:
        """Take over what `dump` returned, or the boot and second alone that an older program stored."""
        self._nodes = {
            node: Arrival(*stored) if len(stored) > _OLDER else Arrival(stored[0], stored[1], stored[1])
            for node, stored in dumped.items()
        }
