"""A task: a part of the input that one replica folds at a time, how it is folded, and where its rows are stored."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bus.folding.overload.shedding import Shedding
from bus.folding.worker import Worker
from bus.publishing.batch import MAXIMUM_BYTES, Row
from bus.reading.feed import Feed
from bus.reading.linger import Linger
from bus.stream import Stream
from schemas.codec import InvalidMessage


@dataclass(frozen=True, slots=True)
class OutputRow:
    """A row to store, and the index, among the messages folded, of the message that caused it."""

    index: int
    row: Row


Given = Callable[[], Awaitable[Sequence[tuple[str, bytes]]]]


class Fold(Protocol):
    """State into which messages are folded, by one thread at a time."""

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[OutputRow], Sequence[InvalidMessage]]:
        """Fold (stored subject, payload) pairs in stream order.

        Returns:
            Rows to store, ordered by index; and the messages that cannot be used.
        """

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: there is no state worth a checkpoint."""

    def capture(self) -> bytes:
        """Return the state as bytes, also if it is not worth a checkpoint."""

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
        partial: Rows stored of the message behind the sequence that `covered` has returned.
    """

    most: int
    partial: int

    async def covered(self, source: Stream) -> int:
        """Return the input sequence up to which rows are stored; 0: none."""

    async def commit(
        self, rows: Sequence[Row], source: Stream, sequence: int, stored_us: int = 0, partial: int = 0
    ) -> None:
        """Store rows and the input sequence that they cover; all or nothing.

        Args:
            rows: At most `most`.
            source: The input.
            sequence: Sequence of the last message of the input that they cover.
            stored_us: When the server stored that message, in microseconds; 0: not known.
            partial: Rows stored then of the next message that has any, where one commit cannot hold all of them.

        Raises:
            Fenced: Another replica has committed since `covered` or since the last commit.
        """


def consumer_name(part: str) -> str:
    """Return the name of the durable consumer of a part; the server pins it to the replica that does the part.

    >>> consumer_name("4"), consumer_name("aggregate")
    ('process-4', 'aggregate')
    """
    return f"process-{part}" if part.isdigit() else part


class Task(NamedTuple):
    """One part of the work, which one replica does at a time.

    Attributes:
        name: Name of the part, and of its checkpoints.
        source: Stream that is folded.
        subjects: Subjects of the stream that are folded.
        checkpoint_seconds: Time between checkpoints; None: the setting for all tasks.
        patient: Nothing waits for its rows. The task collects messages longer before it folds, and only one patient
            task of a process folds at a time, so that their backlogs do not delay the other tasks after a take-over.
        feed: Where it leaves what it reads, for a patient task of the same partition, or takes it if it is that one;
            None: nowhere.
        given: Returns what a new state begins with, (stored subject, payload), where messages of its input have expired
            already; None: it begins empty. What the input still has of it comes again, so an older version of anything
            must change nothing.
        partitions: Number of partitions of the stream for which the task was made; 0: it does not depend on it.
    """

    name: str
    source: str
    subjects: tuple[str, ...]
    checkpoint_seconds: float | None = None
    patient: bool = False
    feed: Feed | None = None
    given: Given | None = None
    partitions: int = 0

    @property
    def consumer(self) -> str:
        """The name of its durable consumer."""
        return consumer_name(self.name)


class Shared:
    """What all task runners of a process share.

    Attributes:
        linger: How long they collect messages.
        turn: Held by the patient task that folds.
        worker: The thread in which they fold.
        shedding: What they leave out when the machine cannot keep up.
    """

    def __init__(self, worker: Worker | None = None, shedding: Shedding | None = None, *, eager: bool = False) -> None:
        self.worker, self.shedding = worker or Worker(), shedding or Shedding()
        self.linger, self.turn = Linger(self.worker.busy_seconds, eager=eager), asyncio.Lock()


class Chunk(NamedTuple):
    """Rows to store together.

    Attributes:
        last: Index of the last message that they cover; None: all messages are covered.
        rows: The rows.
        partial: Rows of message `last` that are stored with this chunk and earlier ones, if not all of them are.
    """

    last: int | None
    rows: list[Row]
    partial: int = 0


def chunks(
    outputs: Sequence[OutputRow], most: int, most_bytes: int = MAXIMUM_BYTES, *, stored: int = 0
) -> Iterator[Chunk]:
    """Yield rows to store together.

    All rows of one message stay in one chunk, unless they alone are too many or have too many bytes.

    Args:
        outputs: Ordered by index.
        most: Rows of a chunk at most.
        most_bytes: Bytes of its payloads at most, unless one row has more.
        stored: Rows of the first message that are stored already and not among the outputs.
    """
    begin = first = 0
    while begin < len(outputs):
        end = cut = _end(outputs, begin, most, most_bytes)
        if end == len(outputs):
            yield Chunk(None, [output.row for output in outputs[begin:]])
            return
        while cut > begin and outputs[cut - 1].index == outputs[cut].index:
            cut -= 1
        if cut > begin:
            yield Chunk(outputs[cut - 1].index, [output.row for output in outputs[begin:cut]])
            begin = first = cut
            stored = 0
        else:
            rows = [output.row for output in outputs[begin:end]]
            yield Chunk(outputs[begin].index, rows, stored + end - first)
            begin = end


def _end(outputs: Sequence[OutputRow], begin: int, most: int, most_bytes: int) -> int:
    """Return behind which row a chunk ends that has at most so many rows and bytes, and at least one row."""
    end = min(len(outputs), begin + most)
    size = 0
    for index in range(begin, end):
        size += len(outputs[index].row.payload)
        if size > most_bytes and index > begin:
            return index
    return end
