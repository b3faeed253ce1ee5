"""Stores the rows of folds: each once, in chunks with their cursor, without those that no server takes."""

from collections.abc import Sequence

from nats.aio.client import Client
from prometheus_client import Counter

from bus.folding.task import Journal, OutputRow, chunks
from bus.publishing.bounds import Bounds
from bus.reading.progress import Received
from bus.stream import Stream
from schemas.subject import Names

ROWS = Counter("spazio_rows_published_total", "rows published by folds")


class Publication:
    """The rows of one task.

    Attributes:
        published: Input sequence up to which no rows are stored any more: they are, or there are none to store. Those
            of later messages are not, except for `partial` rows of the first that has any.
        partial: That number.
        recorded: Input sequence of which the journal says so; lower while later messages have no rows.
    """

    def __init__(self, client: Client, journal: Journal, names: Names, *, timeout_seconds: float) -> None:
        """Describe where rows are stored; `resume` comes first."""
        self._journal = journal
        self._bounds = Bounds(client, names, "process", timeout_seconds=timeout_seconds)
        self.published = self.partial = self.recorded = 0

    async def resume(self, source: Stream) -> None:
        """Read from the journal up to where rows are stored."""
        self.published = self.recorded = await self._journal.covered(source)
        self.partial = self._journal.partial

    def skip(self, sequence: int) -> None:
        """Store no rows up to a sequence, since a checkpoint has it: it is never ahead of its rows.

        The cursor may be behind, since messages without rows move none, and since it may expire from its stream.
        """
        self.published = max(self.published, sequence)

    async def store(self, messages: Sequence[Received], outputs: Sequence[OutputRow], source: Stream) -> None:
        """Store the rows of a fold, without those that are stored already and those that no server takes.

        Raises:
            Fenced: Another replica has stored rows since.
        """
        waiting = [output for output in outputs if messages[output.index].sequence > self.published]
        waiting = await self._bounds.fitting(waiting, lambda output: (output.row.subject, output.row.payload))
        done, waiting = self.partial, waiting[self.partial :]
        for last, rows, partial in chunks(waiting, self._journal.most, stored=done):
            cause = messages[-1 if last is None else last]
            # With some of a message's rows, what was covered before still is.
            covered, stored_us = (self.published, 0) if partial else (cause.sequence, cause.stored_us)
            await self._journal.commit(rows, source, covered, stored_us, partial)
            self.published, self.partial = covered, partial
            self.recorded = covered
            ROWS.inc(len(rows))
