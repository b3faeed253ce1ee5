"""What was published of a node's containers before this agent began, read back from the telemetry stream."""

import logging
import re
import time

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError

from bus.reading.reader import Reader
from producers.containers import follow
from producers.containers.merge import Happening, Memory, Said
from producers.containers.sources.source import Identity
from schemas import codec
from schemas.boot import cut
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock
from schemas.subject import Names, token

log = logging.getLogger(__name__)

_NO_MESSAGE = 10037
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
    js, began = client.jetstream(timeout=timeout_seconds), time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        last, block = await _last(js, names.telemetry, events), await _last(js, names.telemetry, pods)
    except (nats.errors.Error, TimeoutError) as error:
        log.warning("containers.forgotten", extra={"reason": f"{names.telemetry} cannot be read: {error}"})
        return Memory()
    said: dict[str, Said] = {}
    async with Reader(client, names.telemetry, [events], timeout_seconds=timeout_seconds) as reader:
        while last is not None and reader.position < (last.seq or 0):
            for message in await reader.read():
                try:
                    event = codec.decode_from(ContainerEvent, message.data, message.subject)
                except codec.Refused:
                    continue  # whoever folds the stream buries it
                said[event.container] = Said(follow.happening(event), rebooted=cut(event.boot) != cut(boot))
    ran = _ran(block, boot, began)
    for id_ in ran - said.keys():
        if _CONTAINER.fullmatch(id_):
            said[id_] = Said(Happening("started", Identity(id_), ("usage",), 0))
    return Memory(said, ran)


async def _last(js: JetStreamContext, stream: str, subject: str) -> api.RawStreamMsg | None:
    """Return the last message that is stored under a subject; None if there is none.

    Raises:
        nats.errors.Error: There is no such stream, or it may not be read; also TimeoutError.
    """
    try:
        return await js.get_last_msg(stream, subject)
    except NotFoundError as error:
        if error.err_code != _NO_MESSAGE:
            raise
        return None


def _ran(block: api.RawStreamMsg | None, boot: str, began: float) -> frozenset[str]:
    """Return the pods in a block of usage, if it was measured before this agent began."""
    try:
        usage = codec.decode(PodUsageBlock, (block.data if block else None) or b"")
    except codec.Refused:
        return frozenset()
    return frozenset(usage.pods if cut(usage.boot) == cut(boot) and usage.seq < int(began) else ())
