"""Which messages were there already: a retry that outlived the server's memory is stored twice, under two sequences.

A producer sends one message after the other and repeats the one that was not acknowledged, so a copy comes soon
after the original. A block tells its place by (boot, seq), of which the newest of each node is kept; of anything
else the newest identities of its table are.
"""

from collections import OrderedDict
from collections.abc import Hashable

from schemas.messages.base import Message
from schemas.messages.telemetry import Block, PodUsageBlock
from sinks.history.table import Table

# A copy follows its original by at most what all producers send at once when the server is back, one message each.
_KEPT = 16_384


class Repetition:
    """Tells copies from new messages; takes a bounded amount of memory for each table and node."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._marks: dict[tuple[str, str], tuple[str, int]] = {}
        self._known: dict[str, OrderedDict[Hashable, None]] = {}

    def new(self, table: Table, message: Message) -> bool:
        """Tell whether a message is new, and remember it."""
        if isinstance(message, Block | PodUsageBlock):
            return self._later(table.name, message)
        if table.identity is None:
            return True
        known, identity = self._known.setdefault(table.name, OrderedDict()), table.identity(message)
        if identity in known:
            return False
        known[identity] = None
        if len(known) > self._kept:
            known.popitem(last=False)
        return True

    def _later(self, table: str, block: Block | PodUsageBlock) -> bool:
        boot, seq = self._marks.get((table, block.node), ("", -1))
        if boot == block.boot and block.seq <= seq:
            return False
        self._marks[table, block.node] = (block.boot, block.seq)
        return True
