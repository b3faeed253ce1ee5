"""A tiny load balancer: each new connection goes to the next of some addresses that takes it, bytes as they are."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager


@asynccontextmanager
async def robin(ports: Sequence[int]) -> AsyncIterator[int]:
    """Balance over ports of this host for the length of a block; yields the port to connect to."""
    turn = 0
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal turn
        for _ in ports:
            turn += 1
            try:
                ahead, behind = await asyncio.open_connection("127.0.0.1", ports[turn % len(ports)])
            except OSError:
                continue
            async with _closing(behind):
                await asyncio.gather(_pipe(reader, behind), _pipe(ahead, writer))
            return

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closing(writer):
            await serve(reader, writer)

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(accept(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    writer.close()
