"""What the history lacks: gaps of its streams, in seconds and rows of each table, and blocks that never arrived.

A gap has one of three reasons: messages expired from the stream before they were read; the server came back with less
than it had; the stream was recreated. Nothing records how many rows it cost. The estimate is the usual rows per second
of the table, times the seconds between the measurements of its last row before the gap and of its first row after it.
Blocks of a node are numbered by their seconds, so it is known exactly which of them never arrived.
"""

import logging
import math
from collections.abc import Mapping
from typing import NamedTuple, cast

from prometheus_client import Counter

from sinks.history.table import TABLES, Kept, Numbered, Table

log = logging.getLogger(__name__)

EXPIRED, SET_BACK, RECREATED = "expired", "set_back", "recreated"
_SECONDS = 60.0  # over which the rows per second are averaged
_NODES = 100_000
_LONGEST_SECONDS = 86_400  # a block further ahead is no evidence of missing ones

GAPS = Counter("spazio_history_gaps_total", "gaps in a stream, as the history read it", ["stream", "reason"])
GAP_MESSAGES = Counter(
    "spazio_history_gap_messages_total", "messages that the stream dropped before the history read them", ["stream"]
)
GAP_SECONDS = Counter("spazio_history_gap_seconds_total", "seconds without rows at gaps", ["table", "reason"])
GAP_ROWS = Counter(
    "spazio_history_gap_rows_total", "rows lost at gaps, estimated from the usual rate", ["table", "reason"]
)
MISSING = Counter(
    "spazio_history_missing_blocks_total", "blocks of one second that never arrived although later ones did", ["table"]
)


class Pace(NamedTuple):
    """The usual rows per second of a table, as a mean that forgets.

    Attributes:
        at_us: When its last row was measured, in microseconds.
        stored_us: When the server stored that row.
        since_us: When the server stored the first row.
        sum: Rows per second; it lacks the share of the time before the first row.
    """

    at_us: int
    stored_us: int
    since_us: int
    sum: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.sum / -math.expm1(-max(1.0, (self.stored_us - self.since_us) / 1e6) / _SECONDS)


class Gaps:
    """Accounts of one stream's tables."""

    def __init__(self, stream: str, pace: Mapping[str, Pace]) -> None:
        """Continue with the pace that the cursor file has."""
        self._stream = stream
        self._pace = {name: pace[name] for name in pace if name in {table.name for table in TABLES}}
        self._open: dict[str, str] = {}
        self._newest: dict[tuple[str, str], tuple[str, int]] = {}

    @property
    def pace(self) -> dict[str, Pace]:
        """The pace of each table."""
        return self._pace

    def begin(self, reason: str, messages: int = 0) -> None:
        """Record a gap behind the last message; `messages` is the known number of those that are lost."""
        GAPS.labels(self._stream, reason).inc()
        GAP_MESSAGES.labels(self._stream).inc(messages)
        self._open = dict.fromkeys(self._pace, reason)
        log.warning("history.gap", extra={"stream": self._stream, "reason": reason, "messages": messages})

    def note(self, table: Table, kept: Kept, stored_us: int) -> None:
        """Take a message that is stored, and when the server stored it."""
        at_us: int = getattr(kept, "at_us", 0)
        last = self._pace.get(table.name, Pace(at_us, stored_us, stored_us, 0.0))
        passed = max(0.0, (stored_us - last.stored_us) / 1e6)
        rows, since_us, summed = table.rows(kept), last.since_us, last.sum
        reason = self._open.pop(table.name, None)
        if reason is None:
            summed *= math.exp(-passed / _SECONDS)
        else:
            # What a producer kept while the server was away was measured without a gap, and is stored late. A wrong
            # clock of a node cannot make the gap longer than the time between the two.
            seconds = min(max(0.0, (at_us - last.at_us) / 1e6), passed)
            GAP_SECONDS.labels(table.name, reason).inc(seconds)
            GAP_ROWS.labels(table.name, reason).inc(max(0, round(last.rate * seconds) - rows))
            since_us += stored_us - last.stored_us
        self._pace[table.name] = Pace(at_us, stored_us, since_us, summed + rows / _SECONDS)
        if table.numbered:
            self._number(table.name, cast("Numbered", kept))

    def _number(self, table: str, block: Numbered) -> None:
        key = table, block.node
        boot, seq = self._newest.pop(key, ("", 0))
        if boot == block.boot and block.seq <= seq:
            self._newest[key] = (boot, seq)
            return
        if boot == block.boot and 1 < block.seq - seq <= _LONGEST_SECONDS:
            MISSING.labels(table).inc(block.seq - seq - 1)
        self._newest[key] = (block.boot, block.seq)
        if len(self._newest) > _NODES:
            del self._newest[next(iter(self._newest))]
