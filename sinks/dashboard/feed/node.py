"""All live messages of one node, as they are published, for the page that shows it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from bus.client import Client, Message
from schemas.subject import Names, kind_of

KINDS = ("samples", "smoothed", "pods", "availability", "prediction", "reject", "containers")
_WAITING = 200  # messages for a page that does not read; then the oldest are left out


async def follow(client: Client, names: Names, node: str) -> AsyncIterator[bytes]:
    """Yield each message of a node as an event named after its kind.

    Args:
        client: Connection.
        names: Subjects in use.
        node: Name of the node.
    """
    queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(_WAITING)

    async def take(message: Message) -> None:
        if queue.full():
            queue.get_nowait()
        queue.put_nowait((kind_of(message.subject), message.data))

    async with AsyncExitStack() as stack:
        for kind in KINDS:
            listening = await client.subscribe(names.node(kind, node), cb=take)
            stack.push_async_callback(listening.unsubscribe)
        while True:
            kind, payload = await queue.get()
            # A line end would begin another field of the event; JSON of a publisher may have some between values.
            yield b"event: %b\ndata: %b\n\n" % (kind.encode(), payload.replace(b"\r", b" ").replace(b"\n", b" "))
