"""`spazio agent`: measures this node and its pods, publishes a block of each a second, and what happens to containers.

It runs on every node, so it must stay small: no numpy, no DataFrame, no command-line framework.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from functools import partial

# nats-py loads aiohttp for WebSockets if it is installed; the agent does not speak them and saves 10 MB.
sys.modules.setdefault("aiohttp", None)  # type: ignore[arg-type] # None makes the import fail, as documented

from bus.outbox import Outbox
from producers import file, inventory, usage
from producers.census import Census
from producers.containers import choose
from producers.containers.follow import Follower
from producers.sampler import Sampler
from producers.ticker import Ticker
from schemas import codec
from schemas.subject import Names
from schemas.telemetry import ContainerEvent
from spazio import option, remembered, service
from spazio.service import Context

_FLUSH_SECONDS = 2.0
_EVENTS_IN_FLIGHT = 64  # a burst waits for one acknowledgement, not for one after the other
_USAGE_BLOCKS = 120  # kept while the server is away; one of 200 pods has 30 kB


async def work(context: Context) -> None:
    """Sample, follow containers and publish until cancelled; then send what is left."""
    settings, loop = context.settings, asyncio.get_running_loop()
    sample, runtime, names = settings.sample, settings.runtime, Names(settings.prefix)
    node, boot = sample.node_name, inventory.boot_id(sample.proc)
    blocks = _outbox(context, "samples", sample.buffer_blocks)
    usages = _outbox(context, "pods", min(sample.buffer_blocks, _USAGE_BLOCKS))
    events = _outbox(context, "containers", runtime.buffer_events, _EVENTS_IN_FLIGHT)

    def hand_over(outbox: Outbox, kind: str, seq: int, payload: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; so will the threads
            loop.call_soon_threadsafe(outbox.put, names.node(kind, node), payload, f"{kind}:{node}:{boot}:{seq}")

    def tell(event: ContainerEvent) -> None:
        identity = f"containers:{node}:{boot}:{event.boottime_us}:{event.container}:{event.event}"
        events.put(names.node("containers", node), codec.encode(event), identity)

    follower = Follower(choose.choose(settings), node=node, boot=boot, emit=tell, rescan_seconds=runtime.rescan_seconds)
    before = partial(
        remembered.read,
        context.client,
        names,
        node=node,
        boot=boot,
        timeout_seconds=settings.nats.request_timeout_seconds,
    )
    census = Census(sample.cgroup, sample.proc)
    reader = usage.Reader(
        census,
        sample.cgroup,
        sample.proc,
        node=node,
        boot=boot,
        identify=follower.registry.get,
        descriptors=file.allow_descriptors(),
    )
    threads: list[Sampler | Ticker] = [
        Sampler(
            inventory.default(sample, census, reader),
            node=node,
            boot=boot,
            interval_seconds=sample.interval_seconds,
            emit=partial(hand_over, blocks, "samples"),
        )
    ]
    if runtime.usage:
        threads.append(Ticker(reader, partial(hand_over, usages, "pods")))
    for thread in threads:
        thread.start()
    try:
        async with asyncio.TaskGroup() as group:
            for part in (blocks.run(), usages.run(), events.run(), follower.run(before)):
                group.create_task(part)
    finally:
        for thread in threads:
            thread.stop()
        await _flush(blocks, usages, events)


def _outbox(context: Context, kind: str, limit: int, in_flight: int = 1) -> Outbox:
    timeout_seconds = context.settings.nats.request_timeout_seconds
    return Outbox(
        context.client, context.health, limit=limit, timeout_seconds=timeout_seconds, kind=kind, in_flight=in_flight
    )


async def _flush(*outboxes: Outbox) -> None:
    """Send what is left, as far as time allows."""
    sending = [asyncio.create_task(outbox.run()) for outbox in outboxes]
    await asyncio.gather(*(outbox.flush(_FLUSH_SECONDS) for outbox in outboxes))
    for task in sending:
        task.cancel()


def main(arguments: Sequence[str]) -> int:
    """Run `spazio agent ARGUMENTS`."""
    settings = option.parse("agent", "Measure this node, ten times a second, and follow its containers.", arguments)
    return service.run("agent", settings, work, streams=False)
