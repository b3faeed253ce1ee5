"""`spazio agent`: measures this node and its pods, publishes a block of each a second, and what happens to containers.

It runs on every node, so it must stay small: no numpy, no DataFrame, no command-line framework.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

# nats-py loads aiohttp for WebSockets if it is installed; the agent does not speak them and saves 10 MB.
sys.modules.setdefault("aiohttp", None)  # type: ignore[arg-type] # None makes the import fail, as documented

from bus.publishing.outbox import Outbox
from producers import file, inventory
from producers.containers.follow import Follower
from producers.containers.sources import choose
from producers.pods import usage
from producers.pods.census import Census
from producers.pods.ticker import Ticker
from producers.sampler import Sampler
from schemas import codec
from schemas.messages.telemetry import ContainerEvent
from schemas.subject import Names
from spazio import option
from spazio.recovery import agent_recovery
from spazio.service import service
from spazio.service.service import Context

_FLUSH_SECONDS = 2.0
_EVENTS_IN_FLIGHT = 64  # a burst waits for one acknowledgement, not for one after the other
_USAGE_BLOCKS = 120  # kept while the server is away; one of 200 pods has 30 kB


class Refine(Protocol):
    """What makes other blocks of the sampled ones before they are sent; called in the event loop's thread.

    Attributes:
        kind: Kind of those blocks.
        boot_digits: How much of the boot id is sent; None: all of it.
    """

    kind: str
    boot_digits: int | None

    def identity(self, node: str, boot: str, seq: int) -> str:
        """Return a block's message id."""

    def block(self, payload: bytes) -> bytes | None:
        """Return what is sent in the place of a block; None: nothing."""

    def event(self, payload: bytes) -> None:
        """Take in what happened to a container; it is sent as well."""


class Samples(Refine):
    """Blocks go out as they were sampled."""

    kind = "samples"
    boot_digits = None

    def identity(self, node: str, boot: str, seq: int) -> str:
        """Return an id that people can read, too."""
        return f"samples:{node}:{boot}:{seq}"

    def block(self, payload: bytes) -> bytes | None:
        """Return the block."""
        return payload

    def event(self, payload: bytes) -> None:
        """Let it go."""


async def work(context: Context, refine: Refine) -> None:
    """Sample, follow containers and publish until cancelled; then send what is left.

    Args:
        context: What a service works with.
        refine: Makes other blocks of the sampled ones.
    """
    settings, loop = context.settings, asyncio.get_running_loop()
    sample, runtime, names = settings.sample, settings.runtime, Names(settings.prefix)
    node, boot = sample.node_name, inventory.boot_id(sample.proc)[: refine.boot_digits]
    blocks = _outbox(context, refine.kind, sample.buffer_blocks)
    usages = _outbox(context, "pods", min(sample.buffer_blocks, _USAGE_BLOCKS))
    events = _outbox(context, "containers", runtime.buffer_events, _EVENTS_IN_FLIGHT)

    def hand_over(put: Callable[[int, bytes], None], seq: int, payload: bytes) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; so will the threads
            loop.call_soon_threadsafe(put, seq, payload)

    def put_block(seq: int, payload: bytes) -> None:
        if refined := refine.block(payload):
            blocks.put(names.node(refine.kind, node), refined, refine.identity(node, boot, seq))

    def put_usage(seq: int, payload: bytes) -> None:
        usages.put(names.node("pods", node), payload, f"pods:{node}:{boot}:{seq}")

    def tell(event: ContainerEvent) -> None:
        identity = f"containers:{node}:{boot}:{event.boottime_us}:{event.container}:{event.event}"
        payload = codec.encode(event)
        refine.event(payload)
        events.put(names.node("containers", node), payload, identity)

    follower = Follower(choose.choose(settings), node=node, boot=boot, emit=tell, rescan_seconds=runtime.rescan_seconds)
    before = partial(
        agent_recovery.read,
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
            emit=partial(hand_over, put_block),
        )
    ]
    if runtime.usage:
        threads.append(Ticker(reader, partial(hand_over, put_usage)))
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
    return service.run("agent", settings, lambda context: work(context, Samples()), streams=False)
