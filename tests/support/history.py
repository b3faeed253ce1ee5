"""Messages into the history as its service takes them in."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from schemas import codec
from schemas.messages.base import Message
from sinks.history import table, view
from sinks.history.writer import Writer

# Settings without roll-ups.
UNROLLED = {"retention_10s_seconds": 0.0, "retention_1m_seconds": 0.0}


def record(folder: Path, messages: Iterable[tuple[str, Message]]) -> None:
    """Write messages, each with its subject, into a new history."""
    store(folder, ((subject, codec.encode(message)) for subject, message in messages))


def store(folder: Path, payloads: Iterable[tuple[str, bytes]]) -> Path:
    """Write encoded messages, each with its subject, into a new history, and return its folder."""
    writer = Writer(folder, "S", "20261121T063000123456Z", 1)
    for sequence, (subject, payload) in enumerate(payloads, 1):
        append(writer, subject, sequence, payload)
    writer.flush()
    view.create(folder)
    return folder


def ask(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, as `spazio sql` runs it."""
    with view.connect(folder, restricted=True) as connection:
        return connection.execute(statement).fetchall()


def append(writer: Writer, subject: str, sequence: int, payload: bytes) -> None:
    """Decode one message and append it.

    Raises:
        schemas.codec.Refused: As `table.decode`; it is covered all the same.
    """
    try:
        message = table.decode(subject, payload)
        if message is not None:
            writer.append(subject, sequence, message)
    finally:
        writer.cover(sequence, sequence)
