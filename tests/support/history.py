"""Messages into the history as its service takes them in."""

from sinks.history import table
from sinks.history.writer import Writer


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
