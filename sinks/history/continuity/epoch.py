"""Epochs: what the history calls a stream that came back with less than it had.

Such a stream gives the same sequences to other messages. The history's files are named for their sequences, so it
continues under another name: the stream's identity and the number of the epoch. The cursor file holds the name, the
position in it, and where earlier epochs ended. A cursor of an earlier version lacks the time of its last message; a new
epoch then begins only if the stream ends before it.

A stream that was deleted and made again has another identity and none of the messages. Processors make again what they
published since their checkpoints, so the stream before it counts as an epoch that ended.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bus.reading.setback import Mark
from sinks.history import layout
from sinks.history.continuity.gap import Pace
from sinks.history.continuity.repetition import MOST_BETWEEN

_MOST_EARLIER = 16
_MADE_AGAIN = 4 * MOST_BETWEEN  # messages of a stream that is gone: those of a minute, the predictor's replay
REMEMBERED_US = 10 * 60 * 1_000_000


class Earlier(NamedTuple):
    """An epoch that ended: its name, the last sequence that the stream has kept of it, and when it ended."""

    created: str
    kept: int
    ended_us: int


class Position(NamedTuple):
    """What the cursor file says.

    Attributes:
        created: Name of the epoch; empty: there is neither a cursor nor a file of this stream. If there is a cursor of
            another stream of that name, `pace` is that stream's, and so is the last of `earlier`.
        read: Last message whose rows are written.
        earlier: Epochs that ended in the last minutes, oldest first.
        pace: The pace of each table, by which gaps are measured.
    """

    created: str
    read: Mark
    earlier: tuple[Earlier, ...] = ()
    pace: Mapping[str, Pace] = {}

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the cursor file beside name and sequence."""
        return {"stored_us": self.read.stored_us, "earlier": list(self.earlier), "pace": dict(self.pace)}


def following(created: str) -> str:
    """Return the name of the next epoch; names sort as the epochs follow one another.

    >>> following("20261123T040506000001Z"), following("20261123T040506000001ZE09Z")
    ('20261123T040506000001ZE01Z', '20261123T040506000001ZE10Z')
    """
    stream, _, number = created.partition("ZE")
    return f"{stream.removesuffix('Z')}ZE{int(number.removesuffix('Z') or 0) + 1:02d}Z"


def read(directory: Path, stream: str, wanted: str) -> Position:
    """Return the history's position in a stream.

    Args:
        directory: Folder of the history.
        stream: Name of the stream.
        wanted: Identity of the stream. If the cursor is of another stream or damaged, the files name the epoch.
    """
    content = layout.read_content(directory, stream)
    position = Position("", Mark(0)) if content is None else _parse(content)
    if layout.identity(position.created) == wanted:
        return position
    files = [name for _, name in layout.files(directory) if layout.identity(name.created) == wanted]
    created = max((name.created for name in files), default="")
    last = max((name.last for name in files if name.created == created), default=0)
    return Position(created, Mark(last), _with_stream(position), {} if created else position.pace)


def _with_stream(position: Position) -> tuple[Earlier, ...]:
    """Return the earlier epochs of a stream that has been replaced, and its last."""
    now_us, read = time.time_ns() // 1000, position.read.sequence
    if not read:
        return _recent(position, now_us)
    return _and(position, Earlier(position.created, max(0, read - _MADE_AGAIN), now_us))


def _recent(position: Position, now_us: int) -> tuple[Earlier, ...]:
    return tuple(each for each in position.earlier if each.ended_us > now_us - REMEMBERED_US)


def _and(position: Position, ended: Earlier) -> tuple[Earlier, ...]:
    return (*_recent(position, ended.ended_us), ended)[-_MOST_EARLIER:]


def _parse(content: Mapping[str, Any]) -> Position:
    mark = Mark(int(content["sequence"]))
    try:
        earlier = tuple(Earlier(str(name), int(kept), int(us)) for name, kept, us in content.get("earlier", ()))
        pace = {
            str(name): Pace(int(at_us), int(stored_us), int(since_us), float(summed))
            for name, (at_us, stored_us, since_us, summed) in content.get("pace", {}).items()
        }
        return Position(str(content["created"]), mark._replace(stored_us=int(content["stored_us"])), earlier, pace)
    except (LookupError, TypeError, ValueError, AttributeError):  # written by an earlier version
        return Position(str(content["created"]), mark)


def begin(directory: Path, stream: str, position: Position, kept: Mark, now_us: int) -> Position:
    """Begin an epoch behind what a stream has kept, and return the position in it.

    Raises:
        OSError: The folder is not writable.
    """
    earlier = _and(position, Earlier(position.created, kept.sequence, now_us))
    begun = Position(following(position.created), kept, earlier, position.pace)
    layout.write_cursor(directory, stream, begun.created, kept.sequence, begun.extra)
    return begun
