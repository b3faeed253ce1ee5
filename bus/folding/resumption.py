"""From which checkpoint a replica folds on, also if the server came back with less than it had.

Input, rows and checkpoints are in different streams, and each may have lost another part of its end:

- The input has lost messages that are in a checkpoint: that checkpoint is of no use, since what is folded must be what
  the stream has. An older one is, or the stream is folded from its start.
- The input has lost messages that the cursor covers: rows up to the end of what it has kept are stored (`Journal`).
- The rows have lost their end, and with it the newest cursors: a checkpoint from before the lost rows makes them again.
  If there is none, they are lost, which is logged; the next fold goes on with the state that there is.
- The checkpoints have lost their end: the older ones take longer, nothing else.
"""

import logging

from nats.aio.client import Client

from bus import stream
from bus.folding.checkpoint import Checkpoint, Store
from bus.folding.task import Task
from bus.reading import setback
from bus.reading.setback import Mark, SetBack
from bus.stream import Repartitioned, Stream

log = logging.getLogger(__name__)


async def input_of(client: Client, task: Task) -> Stream:
    """Return the state of a task's input.

    Raises:
        Repartitioned: It has another number of partitions than when the task was made.
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    described = await stream.describe(client, task.source)
    if task.partitions not in (0, described.partitions):
        raise Repartitioned(f"{task.source} has {described.partitions} partitions now, and had {task.partitions}")
    return described


class Unread:
    """Counts messages that have expired and that neither this task nor an earlier holder has read, each once."""

    def __init__(self, part: str) -> None:
        """Count for the task of that name."""
        self._part, self._counted = part, ("", 0)

    def count(self, covered: int, source: Stream) -> int:
        """Return how many there are that were not counted before; 0: none.

        Of the whole stream: a task reads about its partition's share.

        Args:
            covered: Input sequence up to which messages were folded; 0: none was.
            source: Its input.
        """
        identity, counted = self._counted
        after = max(covered, counted) if identity == source.identity else covered
        if not covered or after + 1 >= source.first:
            return 0
        self._counted = source.identity, source.first - 1
        log.warning("input.expired_unread", extra={"part": self._part, "from": after + 1, "to": source.first - 1})
        return (source.first - after - 1) // max(1, source.partitions)


async def kept(client: Client, name: str, source: Stream, checkpoint: Checkpoint, timeout_seconds: float) -> bool:
    """Tell whether the input still has what is in a checkpoint, or had it until it expired; log it if not.

    Args:
        client: Connection.
        name: Name of the checkpoint.
        source: The input.
        checkpoint: The checkpoint.
        timeout_seconds: Time limit for each request to the server.

    Raises:
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    try:
        await setback.check(client, source.name, Mark(checkpoint.sequence, checkpoint.stored_us), timeout_seconds)
    except SetBack as error:
        log.warning("checkpoint.set_aside", extra={"part": name, "reason": str(error)})
        return False
    return True


async def find(
    client: Client, store: Store, name: str, source: Stream, covered: int, timeout_seconds: float
) -> Checkpoint | None:
    """Return the newest checkpoint from which to fold on; None: there is none.

    Args:
        client: Connection.
        store: Checkpoints.
        name: Name of the task.
        source: Its input.
        covered: Input sequence up to which rows are stored; 0: none.
        timeout_seconds: Time limit for each request to the server.

    Raises:
        nats.errors.Error: The server did not answer; also TimeoutError.
    """
    rowless: list[Checkpoint] = []

    async def usable(checkpoint: Checkpoint) -> bool:
        if not await kept(client, name, source, checkpoint, timeout_seconds):
            return False
        if covered and checkpoint.published > covered:
            rowless.append(checkpoint)
            return False
        return True

    newest = await store.load(name, source.identity, usable)
    if newest is None and rowless:
        newest = rowless[0]
        log.warning("rows.lost", extra={"part": name, "from": covered + 1, "to": newest.published})
    return newest
