"""Messages of one stream to Parquet files, each row once, whatever happens in between.

A flush is a transaction: files of all tables are written and put in place, then the cursor file is replaced. What
lies beyond the cursor at the next start was not committed; it is removed and comes again from the stream.
"""

import contextlib
import io
import logging
from pathlib import Path

from schemas import codec
from schemas.message import Message
from sinks.history import layout
from sinks.history import table as tables
from sinks.history.layout import HOUR_US, Name

log = logging.getLogger(__name__)


class Writer:
    """Buffers and writes the rows of one stream; not thread-safe, and the only writer of that stream."""

    def __init__(self, directory: Path, stream: str, created: str, first_sequence: int) -> None:
        """Find out what is committed and remove what is not.

        Args:
            directory: Folder of the history.
            stream: Name of the stream.
            created: Its identity; with another one its sequences mean other messages.
            first_sequence: Lowest sequence that it still has.

        Raises:
            OSError: The folder cannot be read or written.
        """
        self._directory, self._stream, self._created = directory, stream, created
        directory.mkdir(parents=True, exist_ok=True)
        layout.remove_temporary(directory)
        mine = [(path, name) for path, name in layout.files(directory) if name.created == created]
        cursor = layout.read_cursor(directory, stream, created)
        self._cursor = max((name.last for _, name in mine), default=0) if cursor is None else cursor
        for path, name in mine:
            if name.first <= self._cursor:
                continue
            if name.first < first_sequence:
                # The stream has forgotten what this file holds: an unfinished flush is better than none.
                log.warning("history.adopted", extra={"file": str(path)})
                self._cursor = max(self._cursor, name.last)
            else:
                path.unlink()
        self._seen = self._cursor
        self._messages: dict[str, list[Message]] = {}
        self._rows = 0
        self._placed: list[Path] = []

    @property
    def cursor(self) -> int:
        """Sequence up to which everything is written."""
        return self._cursor

    @property
    def rows(self) -> int:
        """Rows that wait to be written."""
        return self._rows

    def append(self, subject: str, sequence: int, payload: bytes) -> None:
        """Take in one message; one that was seen, or that no table is for, changes nothing.

        Raises:
            schemas.codec.Refused: The payload is not what its subject says.
        """
        if sequence <= self._seen:
            return
        self._seen = sequence
        table = tables.of_subject(subject)
        if table is None:
            return
        if table.by_node:
            message = codec.decode_from(table.message, payload, subject)
        else:
            message = codec.decode(table.message, payload)
        self._messages.setdefault(table.name, []).append(message)
        self._rows += table.rows(message)

    def flush(self) -> int:
        """Write everything that waits and return the number of rows.

        Raises:
            OSError: The disk is full or read-only. Nothing is lost or half written; call again.
        """
        if self._seen == self._cursor:
            return 0
        while self._placed:  # by an attempt that failed later
            self._placed[-1].unlink(missing_ok=True)
            self._placed.pop()
        written: list[tuple[Path, Path]] = []
        try:
            for path, content in self._contents():
                written.append((layout.write(path, content), path))
            for hidden, path in written:
                self._placed.append(path)
                layout.settle(hidden, path)
            layout.write_cursor(self._directory, self._stream, self._created, self._seen)
        except OSError:
            for hidden, _ in written:
                with contextlib.suppress(OSError):
                    hidden.unlink()
            raise
        count = self._rows
        self._cursor, self._messages, self._rows, self._placed = self._seen, {}, 0, []
        return count

    def _contents(self) -> list[tuple[Path, bytes]]:
        contents = []
        name = str(Name(self._created, self._cursor + 1, self._seen))
        for table in tables.TABLES:
            messages = self._messages.get(table.name)
            if not messages:
                continue
            frame = table.frame(messages)
            for key, rows in frame.group_by(frame["at_us"] // HOUR_US, maintain_order=True):
                buffer = io.BytesIO()
                rows.select(list(table.schema)).write_parquet(buffer, compression="zstd")
                hour = key[0]
                assert isinstance(hour, int)  # at_us is an integer that is never missing
                folder = layout.hour_folder(self._directory, table.name, hour * HOUR_US)
                contents.append((folder / name, buffer.getvalue()))
        return contents
