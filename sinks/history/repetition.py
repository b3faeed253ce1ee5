"""Detects duplicate messages: a retry after the server's deduplication window is stored twice, under two sequences.

A producer sends messages in order and repeats the unacknowledged one, so a copy follows soon after the original. Blocks
are identified by (boot, seq), of which the newest per node is kept; for other messages, the newest identities per table
are kept.
"""

from collections import OrderedDict
from collections.abc import Hashable

from schemas.messages.base import Message
from schemas.messages.telemetry import Block, PodUsageBlock
from sinks.history.table import Table

# Most messages between an original and its copy: one message of each producer when the server returns.
_KEPT = 16_384


class Repetition:
    """Detects copies of messages, with bounded memory per table and node."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._marks: dict[tuple[str, str], tuple[str, int]] = {}
        self._identities: dict[str, OrderedDict[Hashable, None]] = {}

    def new(self, table: Table, message: Message) -> bool:
        """Tell whether a message is new, and store its identity."""
        if isinstance(message, Block | PodUsageBlock):
            return self._later(table.name, message)
        if table.identity is None:
            return True
        identities, identity = self._identities.setdefault(table.name, OrderedDict()), table.identity(message)
        if identity in identities:
            return False
        identities[identity] = None
        if len(identities) > self._kept:
            identities.popitem(last=False)
        return True

    def _later(self, table: str, block: Block | PodUsageBlock) -> bool:
        boot, seq = self._marks.get((table, block.node), ("", -1))
        if boot == block.boot and block.seq <= seq:
            return False
        self._marks[table, block.node] = (block.boot, block.seq)
        return True
