"""What was published of a node's containers before this agent began, read back from the telemetry stream."""

import logging
import re
import time

from bus import errors, stream, subscription
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from producers.containers import follow
from producers.containers.merge import Happening, Memory, Said
from producers.containers.sources.source import Identity
from schemas import codec
from schemas.boot import cut
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock
from schemas.subject import Names, token

log = logging.getLogger(__name__)

_CONTAINER = re.compile(r"[0-9a-f]{64}")


async def read(client: Client, names: Names, *, node: str, boot: str, timeout_seconds: float) -> Memory:
    """Return what was said of a node's containers; nothing, and a line in the log, where that may not be read.

    The stream forgets the beginning of a container that has run for longer than it keeps messages. Its last block of
    usage still names the pods that ran, and containers outside of pods.

    Args:
        client: Connection.
        names: Names on the bus.
        node: The node.
        boot: Identifier of the present boot of its kernel; events of another are from before a reboot.
        timeout_seconds: For each answer of the server.
    """
    events, pods = (names.part("*", kind, token(node)) for kind in ("containers", "pods"))
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        last = (await stream.newest(client, names.telemetry, events, timeout_seconds)).sequence
        block = (await stream.newest(client, names.telemetry, pods, timeout_seconds)).payload
    except errors.REQUEST_FAILED as error:
        log.warning("containers.forgotten", extra={"reason": f"{names.telemetry} cannot be read: {error}"})
        return Memory()
    said: dict[str, Said] = {}
    reader = Reader(client, names.telemetry, [events], timeout_seconds=timeout_seconds)
    # Whoever folds the stream buries what is refused.
    async with Subscription(reader, subscription.of(ContainerEvent), subscription.ignore) as containers:
        while containers.position < last:
            for each in (await containers.read()).messages:
                event = each.message
                said[event.container] = Said(follow.happening(event), rebooted=cut(event.boot) != cut(boot))
    ran = _ran(block, boot, began)
    for id_ in ran - said.keys():
        if _CONTAINER.fullmatch(id_):
            said[id_] = Said(Happening("started", Identity(id_), ("usage",), 0))
    return Memory(said, ran)


def _ran(block: bytes, boot: str, began: float) -> frozenset[str]:
    """Return the pods in a block of usage, if it was measured before this agent began."""
    try:
        usage = codec.decode(PodUsageBlock, block)
    except codec.Refused:
        return frozenset()
    return frozenset(usage.pods if cut(usage.boot) == cut(boot) and usage.seq < int(began) else ())
