"""Something that runs for the length of a block."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


@asynccontextmanager
async def background(work: Coroutine[Any, Any, object]) -> AsyncIterator[asyncio.Task[object]]:
    """Run it until the block ends, and end it as a signal does; it must not end before."""
    task = asyncio.create_task(work)
    try:
        yield task
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
