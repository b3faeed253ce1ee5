"""Detects duplicate messages: a retry after the server's deduplication window is stored twice, under two sequences.

A producer sends messages in order and repeats the unacknowledged one, so a copy follows soon after the original. Blocks
are identified by (boot, seq): of each node a few lines are followed, a line being blocks of one boot whose wall clock
runs evenly with `seq`, and which of its last seconds have come. So neither a block with a sequence far ahead nor one of
another boot hides those after it, and two hosts under one name are both stored. What was silent for an hour is
forgotten. For other messages, the newest identities per table are kept.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import cast

from sinks.history.table import Kept, Numbered, Table

# Most messages between an original and its copy: one message of each producer when the server returns.
MOST_BETWEEN = 16_384
_LINES = 4  # of a node in a table: its boot, the one before, and others under its name
_SPAN = 1024  # seconds of a line in which copies are known
_ALL = (1 << _SPAN) - 1
_NODES = 100_000  # nodes and tables that are followed; who names ever new ones takes no more memory
_SILENT_SECONDS = 3600.0  # an agent repeats what it keeps, some minutes, and a line covers seventeen
_EVEN_US = 2_000_000  # a wall clock that moves by more against the boot clock has jumped


@dataclass(slots=True)
class _Line:
    """Blocks of one boot on one clock: the newest, its wall clock minus the boot clock, and a bit for each second."""

    boot: str
    seq: int
    offset_us: int
    seen: int = 1

    def covers(self, boot: str, seq: int, offset_us: int) -> bool:
        """Tell whether a block can be one of this line."""
        even = abs(offset_us - self.offset_us) <= _EVEN_US
        return even and boot == self.boot and abs(seq - self.seq) < _SPAN

    def new(self, seq: int, offset_us: int) -> bool:
        """Tell whether a second has not come before, and store it."""
        if seq > self.seq:
            self.seen = (self.seen << (seq - self.seq) | 1) & _ALL
            self.seq, self.offset_us = seq, offset_us
            return True
        bit = 1 << (self.seq - seq)
        fresh = not self.seen & bit
        self.seen |= bit
        return fresh


@dataclass(slots=True)
class _Followed:
    """Lines of one node in one table, the newest first, and when its last block came."""

    lines: list[_Line]
    heard: float


class CopyDetector:
    """Detects copies of messages, with memory bounded by table, and by node of the last hour."""

    def __init__(self, kept: int = MOST_BETWEEN, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept, self._clock = kept, clock
        self._followed: OrderedDict[tuple[str, str], _Followed] = OrderedDict()  # what was heard last comes last
        self._identities: dict[str, OrderedDict[Hashable, None]] = {}

    def new(self, table: Table, kept: Kept) -> bool:
        """Tell whether a message is new, and store its identity."""
        if table.numbered:
            return self._fresh(table.name, cast("Numbered", kept))
        if table.identity is None:
            return True
        identities, identity = self._identities.setdefault(table.name, OrderedDict()), table.identity(kept)
        if identity in identities:
            return False
        identities[identity] = None
        if len(identities) > self._kept:
            identities.popitem(last=False)
        return True

    def _fresh(self, table: str, block: Numbered) -> bool:
        lines = self._lines(table, block.node)
        offset_us = block.at_us - block.seq * 1_000_000
        for index, line in enumerate(lines):
            if line.covers(block.boot, block.seq, offset_us):
                lines.insert(0, lines.pop(index))
                return line.new(block.seq, offset_us)
        lines.insert(0, _Line(block.boot, block.seq, offset_us))
        del lines[_LINES:]
        return True

    def _lines(self, table: str, node: str) -> list[_Line]:
        """Return a node's lines; drop those of nodes that have been silent for too long, or for longest of too many."""
        now, key = self._clock(), (table, node)
        followed = self._followed.setdefault(key, _Followed([], now))
        followed.heard = now
        self._followed.move_to_end(key)
        while len(self._followed) > _NODES or next(iter(self._followed.values())).heard < now - _SILENT_SECONDS:
            self._followed.popitem(last=False)
        return followed.lines
