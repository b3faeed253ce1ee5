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

from bus.folding.checkpoint import Checkpoint, Store
from bus.reading import setback
from bus.reading.setback import Mark, SetBack
from bus.stream import Stream

log = logging.getLogger(__name__)


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
        try:
            read = Mark(checkpoint.sequence, checkpoint.stored_us)
            await setback.check(client, source.name, read, timeout_seconds)
        except SetBack as error:
            log.warning("checkpoint.set_aside", extra={"part": name, "reason": str(error)})
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
