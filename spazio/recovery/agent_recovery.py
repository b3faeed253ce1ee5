"""Recovers the containers of a node that an earlier agent published, from the telemetry stream."""

import logging
import re
import time

from bus import errors, stream, subscription
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from producers.containers import follow
from producers.containers.published import Happening, LastEvent, Memory
from producers.containers.sources.source import Identity
from producers.pods import ticker
from schemas import codec
from schemas.boot import cut
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock
from schemas.subject import Names, token

log = logging.getLogger(__name__)

_CONTAINER = re.compile(r"[0-9a-f]{64}")


async def read(client: Client, names: Names, *, node: str, boot: str, timeout_seconds: float) -> Memory:
    """Return the published containers of a node; empty, with a log message, if the stream may not be read.

    The start of a container may have expired from the stream. The last block of usage still names the pods that ran
    with the number of their containers, and containers outside of pods.

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
    ran, boottime_us = _ran(block, boot, began)
    for id_ in ran.keys() - published.keys():
        if _CONTAINER.fullmatch(id_):
            published[id_] = LastEvent(Happening("started", Identity(id_), ("usage",), 0))
    return Memory(published, ran, boottime_us)


def _ran(block: bytes, boot: str, began: float) -> tuple[dict[str, int], int]:
    """Return the pods in a block of usage with their containers, and its time, if this agent began after it."""
    try:
        usage = codec.decode(PodUsageBlock, block)
    except codec.Refused:
        return {}, 0
    if cut(usage.boot) != cut(boot) or usage.seq >= int(began):
        return {}, 0
    return dict(zip(usage.pods, usage.containers, strict=True)), usage.seq * 1_000_000 + ticker.OFFSET // 1000
