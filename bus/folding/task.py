"""A task: a part of the input that one replica folds at a time, how it is folded, and where its rows are stored."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bus.publishing.batch import Row
from bus.reading.linger import Linger
from bus.stream import Stream
from schemas.codec import InvalidMessage


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A row to store, and the index, among the messages folded, of the message that caused it."""

    index: int
    row: Row


class Fold(Protocol):
    """State into which messages are folded."""

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[OutputRow], Sequence[InvalidMessage]]:
        """Fold (stored subject, payload) pairs in stream order.

        Returns:
            Rows to store, ordered by index, at most three per message; and the messages that cannot be used.
        """

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: there is no state worth a checkpoint."""

    def clear(self) -> None:
        """Discard all state."""

    def restore(self, body: bytes) -> None:
        """Replace the state by a snapshot. The caller clears the state if that fails.

        Raises:
            ValueError: The snapshot cannot be used.
        """


class Journal(Protocol):
    """Stores rows together with the input sequence that they cover.

    Attributes:
        most: Maximum number of rows that are stored together.
    """

    most: int

    async def covered(self, source: Stream) -> int:
        """Return the input sequence up to which rows are stored; 0: none."""

    async def commit(self, rows: Sequence[Row], source: Stream, sequence: int, stored_us: int = 0) -> None:
        """Store rows and the input sequence that they cover; all or nothing.

        Args:
            rows: The rows.
            source: The input.
            sequence: Sequence of the last message of the input that they cover.
            stored_us: When the server stored that message, in microseconds; 0: not known.

        Raises:
            Fenced: Another replica has committed since `covered` or since the last commit.
        """


class Task(NamedTuple):
    """One part of the work, which one replica does at a time.

    Attributes:
        name: Name of its checkpoints.
        consumer: Name of the durable consumer; the server pins it to the replica that does the task.
        source: Stream that is folded.
        subjects: Subjects of the stream that are folded.
        checkpoint_seconds: Time between checkpoints; None: the setting for all tasks.
        patient: Nothing waits for its rows. The task collects messages longer before it folds, and only one patient
            task of a process folds at a time, so that their backlogs do not delay the other tasks after a take-over.
    """

    name: str
    consumer: str
    source: str
    subjects: tuple[str, ...]
    checkpoint_seconds: float | None = None
    patient: bool = False


class Shared:
    """What all task runners of a process share.

    Attributes:
        linger: How long they collect messages.
        turn: Held by the patient task that folds.
    """

    def __init__(self) -> None:
        self.linger, self.turn = Linger(), asyncio.Lock()


def chunks(outputs: Sequence[OutputRow], most: int) -> Iterator[tuple[int | None, list[Row]]]:
    """Yield rows to store together, and the index of the last message that they cover; None: of all messages.

    All rows of one message stay in one chunk.
    """
    begin = 0
    while len(outputs) - begin > most:
        end = begin + most
        while outputs[end - 1].index == outputs[end].index:
            end -= 1
        yield outputs[end - 1].index, [output.row for output in outputs[begin:end]]
        begin = end
    if begin < len(outputs):
        yield None, [output.row for output in outputs[begin:]]
