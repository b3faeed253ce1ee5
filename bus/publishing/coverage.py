"""Reads up to which input sequence rows are stored: the newest cursor of a stream, or an older one that can be used."""

import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

from nats.aio.client import Client

from bus.publishing import batch
from bus.reading import setback
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.reading.setback import Mark, SetBack
from bus.stream import Stream
from schemas import codec
from schemas.messages.estimate import Cursor

log = logging.getLogger(__name__)

_CHECK_SECONDS = 2.0
_SCAN_SECONDS = 2.0


class Covered(NamedTuple):
    """What a cursor says.

    Attributes:
        sequence: The input sequence up to which rows are stored; 0: none.
        expected: Last sequence of the cursor's subject; 0: it has none.
        partial: Rows stored of the message behind it.
    """

    sequence: int
    expected: int
    partial: int = 0


async def covered(client: Client, stream: str, subject: str, source: Stream) -> Covered:
    """Return up to which sequence an input is folded.

    Args:
        client: Connection.
        stream: Stream that holds the cursor.
        subject: Subject of the cursor.
        source: The input.

    Returns:
        What the newest cursor says. Invalid cursors and cursors of other inputs are ignored, so rows are never
        duplicated.
    """
    newest = await batch.last(client, stream, subject)
    if not newest.sequence:
        return Covered(0, 0)
    if (cursor := await _covering(client, newest.payload, source)) is not None:
        return Covered(cursor.sequence, newest.sequence, cursor.partial or 0)
    log.warning("cursor.set_aside", extra={"subject": subject, "sequence": newest.sequence})
    resumed: Cursor | None = None
    async for message in up_to(client, stream, subject, newest.sequence):
        resumed = _cursor(message.data, source) or resumed
    if resumed is None:
        return Covered(0, newest.sequence)
    return Covered(resumed.sequence, newest.sequence, resumed.partial or 0)


async def up_to(client: Client, stream: str, subject: str, newest: int) -> AsyncIterator[Received]:
    """Yield the messages of a subject up to a sequence, however slowly the server sends them.

    Args:
        client: Connection.
        stream: Stream to read.
        subject: Subject filter.
        newest: Sequence of its last message, which may expire meanwhile.

    Raises:
        nats.errors.Error: The server does not say whether that was all; also TimeoutError.
    """
    async with Reader(client, stream, [subject]) as reader:
        while reader.position < newest:
            messages = await reader.read(timeout_seconds=_SCAN_SECONDS)
            if not messages and await reader.whole():
                return
            for message in messages:
                yield message


async def _covering(client: Client, payload: bytes, source: Stream) -> Cursor | None:
    """Return a cursor, set back to what its input still has of what it covers; None: it is no cursor of this input.

    Raises:
        BusError: The server did not answer; also TimeoutError.
    """
    try:
        cursor = codec.decode(Cursor, payload)
    except codec.Refused:
        return None
    if not cursor.stored_us or cursor.created != source.identity:
        return _cursor(payload, source)
    try:
        await setback.check(client, source.name, Mark(cursor.sequence, cursor.stored_us), _CHECK_SECONDS)
    except SetBack as error:
        log.warning("cursor.set_back", extra={"stream": source.name, "reason": str(error)})
        return cursor.model_copy(update={"sequence": error.kept.sequence, "partial": None})
    return cursor


def _cursor(payload: bytes, source: Stream) -> Cursor | None:
    try:
        cursor = codec.decode(Cursor, payload)
    except codec.Refused:
        return None
    if cursor.created != source.identity or cursor.sequence > source.last:
        return None
    return cursor
