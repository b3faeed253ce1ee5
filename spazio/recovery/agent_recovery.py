"""Recovers the containers of a node that an earlier agent published, from the telemetry stream."""

import logging
import re
import time

from bus import errors, stream, subscription
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from producers.containers import follow
from producers.containers.merge import Happening, LastEvent, Memory
from producers.containers.sources.source import Identity
from schemas import codec
from schemas.boot import cut
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock
from schemas.subject import Names, token

log = logging.getLogger(__name__)

_CONTAINER = re.compile(r"[0-9a-f]{64}")


async def read(client: Client, names: Names, *, node: str, boot: str, timeout_seconds: float) -> Memory:
    """Return the published containers of a node; empty, with a log message, if the stream may not be read.

    The start of a container may have expired from the stream. The last block of usage still names the pods that ran,
    and containers outside of pods.

    Args:
        client: Connection.
        names: Names on the bus.
        node: The node.
        boot: Id of the current boot of its kernel; events of another boot precede a reboot.
        timeout_seconds: Time limit for each request to the server.
    """
    events, pods = (names.part("*", kind, token(node)) for kind in ("containers", "pods"))
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        last = (await stream.newest(client, names.telemetry, events, timeout_seconds)).sequence
        block = (await stream.newest(client, names.telemetry, pods, timeout_seconds)).payload
    except errors.REQUEST_FAILED as error:
        log.warning("containers.recovery_failed", extra={"reason": f"{names.telemetry} cannot be read: {error}"})
        return Memory()
    published: dict[str, LastEvent] = {}
    reader = Reader(client, names.telemetry, [events], timeout_seconds=timeout_seconds)
    # The fold of the stream buries refused messages.
    async with Subscription(reader, subscription.of(ContainerEvent), subscription.ignore) as containers:
        while containers.position < last:
            for each in (await containers.read()).messages:
                event = each.message
                published[event.container] = LastEvent(follow.happening(event), rebooted=cut(event.boot) != cut(boot))
    ran = _ran(block, boot, began)
    for id_ in ran - published.keys():
        if _CONTAINER.fullmatch(id_):
            published[id_] = LastEvent(Happening("started", Identity(id_), ("usage",), 0))
    return Memory(published, ran)


def _ran(block: bytes, boot: str, began: float) -> frozenset[str]:
    """Return the pods in a block of usage, if it was measured before this agent began."""
    try:
        usage = codec.decode(PodUsageBlock, block)
    except codec.Refused:
        return frozenset()
    return frozenset(usage.pods if cut(usage.boot) == cut(boot) and usage.seq < int(began) else ())
