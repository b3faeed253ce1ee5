"""Writes the messages of one stream to Parquet files, each row exactly once.

A flush is a transaction: the writer writes and renames the files of all tables, then replaces the cursor file. Files
beyond the cursor at the next start are not committed; the writer removes them and reads their messages again.
"""

import contextlib
import logging
import time
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import polars as pl
from prometheus_client import Counter

from bus.accounting.ledger import LEDGER
from bus.reading.setback import Mark
from sinks.history import layout, parquet
from sinks.history import table as tables
from sinks.history.chunk import Chunks
from sinks.history.continuity import hour
from sinks.history.continuity.epoch import Earlier, Position
from sinks.history.continuity.gap import Gaps
from sinks.history.continuity.quota import MessageQuota
from sinks.history.continuity.repeated import REPEATED, RepublishedRows
from sinks.history.continuity.repetition import MOST_BETWEEN, CopyDetector
from sinks.history.layout import Name
from sinks.history.table import Kept

log = logging.getLogger(__name__)

_REPEATED = "repeated"

LATE = Counter("spazio_history_late_rows_total", "rows refused for their time", ["table", "reason"])


class Window(NamedTuple):
    """What is stored: times of rows in microseconds, both ends included, and messages of a node in a minute; 0: any.

    `retention_us` is how long before now the earliest is; 0: it does not follow from now. `hours` is how many have
    files of their own in one write of a table; 0: any number.
    """

    earliest_us: int
    latest_us: int
    node_messages: int = 0
    retention_us: int = 0
    hours: int = hour.MOST


_ALL_TIMES = Window(-(2**63), 2**63 - 1)


@dataclass(slots=True)
class _Batch:
    """Rows of one flush."""

    first: int = 0
    last: int = 0
    rows: int = 0
    chunks: dict[str, Chunks] = field(default_factory=dict)
    window: Window = _ALL_TIMES
    late: dict[tuple[str, str], int] = field(default_factory=dict)
    stored_us: int = 0
    sealed_us: int = 0


class Writer:
    """Buffers and writes the rows of one stream; not thread-safe, and the only writer of that stream."""

    def __init__(
        self,
        directory: Path,
        stream: str,
        created: str,
        first_sequence: int,
        window: Callable[[], Window] = lambda: _ALL_TIMES,
        position: Position | None = None,
    ) -> None:
        """Read the cursor, and remove files that are not committed.

        Args:
            directory: Folder of the history.
            stream: Name of the stream.
            created: Its identity, or the name of its epoch; a stream with another one has other messages.
            first_sequence: Lowest sequence that the stream still has.
            window: Returns what is stored now; rows outside of it are counted and left out.
            position: What the cursor file says beside the sequence; None: nothing.

        Raises:
            OSError: The folder is not readable or not writable.
        """
        if not created.isalnum():
            raise ValueError(f"created is {created!r}; a file name needs letters and digits only")
        self._directory, self._stream, self._created = directory, stream, created
        self._window = window
        mine = [(path, name) for path, name in _tidied(directory) if name.created == created]
        cursor = layout.read_cursor(directory, stream, created)
        self._cursor = max((name.last for _, name in mine), default=0) if cursor is None else cursor
        self._position = position or Position(created, Mark(self._cursor))
        if cursor is None:
            if mine:
                log.warning("history.cursor_lost", extra={"stream": stream, "taken": self._cursor})
            # Written before the first file; without a cursor, a partial first flush would count as complete.
            layout.write_cursor(directory, stream, created, self._cursor, {**self._position.extra, "stored_us": 0})
        self._remove_uncommitted(mine, first_sequence)
        self._seen = self._cursor
        self._repetition = CopyDetector()
        # A producer sends again what the server stored before it went away, which may be written already.
        now_us = time.time_ns() // 1000
        before = Earlier(created, max(0, self._cursor - MOST_BETWEEN), now_us)
        self._repeated = RepublishedRows(directory, [*self._position.earlier, before], now_us)
        self.gaps = Gaps(stream, self._position.pace)
        self._quota, self._node_messages = MessageQuota(), window().node_messages
        self._account = LEDGER.account("history rows", stream)
        self._received, self._refused = 0, Tally[str]()  # since they were last added to the account
        self._open = _Batch()
        self._sealed: _Batch | None = None
        self._late_logged: set[str] = set()

    def _remove_uncommitted(self, files: Sequence[tuple[Path, Name]], first_sequence: int) -> None:
        for path, name in files:
            if name.first <= self._cursor:
                continue
            if name.first < first_sequence:
                # The stream does not have these messages any more; an unfinished flush is better than none.
                log.warning("history.file_adopted", extra={"file": str(path)})
                self._cursor = max(self._cursor, name.last)
            else:
                path.unlink()

    @property
    def cursor(self) -> int:
        """Committed sequence."""
        return self._cursor

    @property
    def read(self) -> Mark:
        """Committed message: its sequence, and when the server stored it."""
        mark = self._position.read
        return mark if mark.sequence == self._cursor else Mark(self._cursor)

    @property
    def seen(self) -> int:
        """Sequence of the last message that was appended or covered."""
        return self._seen

    @property
    def rows(self) -> int:
        """Number of buffered rows."""
        return self._open.rows + (self._sealed.rows if self._sealed else 0)

    def append(self, subject: str, sequence: int, kept: Kept, stored_us: int = 0) -> None:
        """Buffer one message that `table.decode` has read; messages seen before, or without a table, are ignored.

        Args:
            subject: Its subject in the stream.
            sequence: Its sequence.
            kept: What is kept of the message.
            stored_us: When the server stored it, in microseconds; 0: not known.
        """
        if sequence <= self._seen:
            return
        self.cover(sequence, sequence, stored_us)
        table = tables.of_subject(subject)
        if table is None:
            return
        rows = table.rows(kept)
        self._received += rows
        if not self._quota.admit(table, kept, stored_us, self._node_messages):
            self._refused["over quota"] += rows
            return
        if not self._repetition.new(table, kept):
            self._refused[_REPEATED] += rows
            return
        self.gaps.note(table, kept, stored_us)
        chunks = self._open.chunks.get(table.name)
        if chunks is None:
            chunks = self._open.chunks[table.name] = Chunks(table)
        chunks.append(kept, sequence, rows)
        self._open.rows += rows

    def cover(self, first: int, last: int, stored_us: int = 0) -> None:
        """Advance the position over messages, also over those without rows: refused ones, and those without a table.

        Args:
            first: Sequence of the first.
            last: Sequence of the last.
            stored_us: When the server stored the last, in microseconds; 0: not known.
        """
        first = max(first, (self._sealed.last if self._sealed else self._cursor) + 1)
        if last < first:
            return
        self._seen = max(self._seen, last)
        self._open.first = min(self._open.first or first, first)
        if last >= self._open.last:
            self._open.last, self._open.stored_us = last, stored_us

    def flush(self) -> int:
        """Write all buffered rows and return the number of those that are stored.

        Raises:
            OSError: The disk is full or read-only. No row is lost or written twice; call again.
        """
        self._note_rows()
        count = 0
        while self._sealed is not None or self._open.last:
            if self._sealed is None:
                self._sealed, self._open = self._open, _Batch()
                self._sealed.window = _around(self._window(), self._sealed.stored_us)
                self._sealed.sealed_us = time.time_ns() // 1000
                self._node_messages = self._sealed.window.node_messages
            # A failed batch is written again unchanged, under the same names: files of the earlier attempt are
            # replaced, never removed, because its cursor may be on the disk.
            self._write(self._sealed)
            self._cursor = self._sealed.last
            stored = self._sealed.rows - self._count_late(self._sealed)
            self._account.add("stored", stored)
            count += stored
            self._sealed = None
        return count

    def _note_rows(self) -> None:
        """Add to the account at once what single messages have brought."""
        self._account.receive(self._received)
        for outcome, rows in self._refused.items():
            self._account.add(outcome, rows)
        self._received, self._refused = 0, Tally()

    def _count_late(self, batch: _Batch) -> int:
        for (table, reason), rows in batch.late.items():
            (REPEATED.labels(table) if reason == _REPEATED else LATE.labels(table, reason)).inc(rows)
            self._account.add(reason, rows)
        if batch.late:
            late = {f"{table} {reason}": rows for (table, reason), rows in batch.late.items()}
            # The counter has the numbers; the log names each new cause once.
            level = logging.DEBUG if late.keys() <= self._late_logged else logging.WARNING
            log.log(level, "history.rows_refused", extra={"stream": self._stream, "rows": late})
            self._late_logged |= late.keys()
        return sum(batch.late.values())

    def _write(self, batch: _Batch) -> None:
        written: list[tuple[Path, Path]] = []
        try:
            for path, content in self._contents(batch):
                written.append((layout.write(path, content), path))
            for hidden, path in written:
                layout.settle(hidden, path)
            position = self._position._replace(read=Mark(batch.last, batch.stored_us), pace=self.gaps.pace)
            layout.write_cursor(self._directory, self._stream, self._created, batch.last, position.extra)
            self._position = position
        except OSError:
            for hidden, _ in written:
                with contextlib.suppress(OSError):
                    hidden.unlink()
            raise

    def _contents(self, batch: _Batch) -> list[tuple[Path, bytes]]:
        contents: list[tuple[Path, bytes]] = []
        name = Name(self._created, batch.first, batch.last)
        for table in tables.TABLES:
            chunks = batch.chunks.get(table.name)
            if chunks is None:
                continue
            frame = _on_time(batch, table.name, chunks.frame())
            new = self._repeated.without(table, frame, batch.sealed_us)
            if new.height < frame.height:
                batch.late[table.name, _REPEATED] = frame.height - new.height
            contents += parquet.by_hour(self._directory, table, new, name, batch.window.hours)
        return contents


def _tidied(directory: Path) -> list[tuple[Path, Name]]:
    """Remove what an interrupted write or compaction has left, and return the files of rows."""
    directory.mkdir(parents=True, exist_ok=True)
    layout.remove_temporary(directory)
    for folder in {path.parent for path, _ in layout.files(directory)}:
        layout.remove_contained(folder)
    return list(layout.files(directory))


def _around(window: Window, stored_us: int) -> Window:
    """Return a window that is right by the server's clock, too, since this machine's may be late or ahead."""
    wide = window._replace(latest_us=max(window.latest_us, stored_us))
    if not (stored_us and window.retention_us):
        return wide
    return wide._replace(earliest_us=min(window.earliest_us, stored_us - window.retention_us))


def _on_time(batch: _Batch, table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows within the batch's window, and note how many are not."""
    past, future = frame["at_us"] < batch.window.earliest_us, frame["at_us"] > batch.window.latest_us
    for reason, is_late in (("past", past), ("future", future)):
        if rows := int(is_late.sum()):
            batch.late[table, reason] = rows
    return frame.filter(~(past | future))
