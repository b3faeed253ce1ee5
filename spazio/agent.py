"""`spazio agent`: measures this node and publishes one block a second.

It runs on every node, so it must stay small: no numpy, no DataFrame, no command-line framework.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence

# nats-py loads aiohttp for WebSockets if it is installed; the agent does not speak them and saves 10 MB.
sys.modules.setdefault("aiohttp", None)  # type: ignore[arg-type] # None makes the import fail, as documented

from bus.outbox import Outbox
from producers import inventory
from producers.sampler import Sampler
from schemas.subject import Names
from spazio import option, service
from spazio.service import Context

_FLUSH_SECONDS = 2.0


async def work(context: Context) -> None:
    """Sample and publish until cancelled; then send what is left."""
    settings = context.settings
    sample, names = settings.sample, Names(settings.prefix)
    outbox = Outbox(
        context.client,
        context.health,
        limit=sample.buffer_blocks,
        timeout_seconds=settings.nats.request_timeout_seconds,
    )
    node, boot = sample.node_name, inventory.boot_id(sample.proc)
    subject, loop = names.node("samples", node), asyncio.get_running_loop()

    def hand_over(seq: int, payload: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; so will the sampler
            loop.call_soon_threadsafe(outbox.put, subject, payload, f"samples:{node}:{boot}:{seq}")

    sampler = Sampler(
        inventory.default(sample), node=node, boot=boot, interval_seconds=sample.interval_seconds, emit=hand_over
    )
    sampler.start()
    sending = asyncio.create_task(outbox.run())
    try:
        await sending
    finally:
        sampler.stop()
        with contextlib.suppress(asyncio.CancelledError):
            sending.cancel()
            await sending
        last = asyncio.create_task(outbox.run())
        await outbox.flush(_FLUSH_SECONDS)
        last.cancel()


def main(arguments: Sequence[str]) -> int:
    """Run `spazio agent ARGUMENTS`."""
    settings = option.parse("agent", "Measure this node and publish one block of samples a second.", arguments)
    return service.run("agent", settings, work, streams=False)
