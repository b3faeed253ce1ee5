"""`spazio agent` measures this node and its pods, and publishes a block of each a second and every container event.

It runs on every node, so it must stay small: no numpy, no DataFrame, no command-line framework.
"""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, Protocol

# nats-py loads aiohttp for WebSockets if it is installed; the agent does not speak them and saves 10 MB.
sys.modules.setdefault("aiohttp", None)  # type: ignore[arg-type] # None makes the import fail, as documented

from bus.publishing import identity
from bus.publishing.outbox import Outbox
from producers import file, inventory
from producers.containers.follow import Follower, MemoryLoader
from producers.containers.sources import choose
from producers.pods import usage
from producers.pods.census import Census
from producers.pods.ticker import Ticker
from producers.sampler import Sampler
from schemas import codec
from schemas.messages.telemetry import ContainerEvent
from schemas.settings import Settings
from schemas.subject import Names
from spazio import option
from spazio.recovery import agent_recovery
from spazio.recovery.container_file import ContainerFile
from spazio.service import service
from spazio.service.service import Context

_FLUSH_SECONDS = 2.0
_EVENTS_IN_FLIGHT = 64  # a burst waits for one acknowledgement, not for one after the other
_USAGES_IN_FLIGHT = 4  # after the server was away: large blocks must keep up with the small ones of samples
_USAGE_BYTES = 8 << 20  # kept while the server is away; a block of 100 pods has 15 kB

P = ParamSpec("P")


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
    boot = inventory.boot_id(settings.sample.proc)[: refine.boot_digits]
    kept = _containers_file(context, boot)
    publisher = _Publisher(context, refine, boot, kept)
    follower = Follower(
        choose.choose(settings),
        node=settings.sample.node_name,
        boot=boot,
        emit=publisher.put_event,
        rescan_seconds=settings.runtime.rescan_seconds,
    )

    def in_loop(put: Callable[P, None]) -> Callable[P, None]:
        def hand_over(*arguments: P.args, **named: P.kwargs) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended; so will the threads
                loop.call_soon_threadsafe(partial(put, *arguments, **named))

        return hand_over

    hand_usages = in_loop(publisher.put_usages)

    def keep_usage(seq: int, payload: bytes) -> None:
        if publisher.keep_usage(seq, payload):
            hand_usages()

    threads = _threads(settings, boot, follower, in_loop(publisher.put_block), keep_usage)
    for thread in threads:
        thread.start()
    try:
        async with asyncio.TaskGroup() as group:
            for outbox in publisher.outboxes:
                group.create_task(outbox.run())
            group.create_task(follower.run(_recovery(context, boot, kept)))
            if kept is not None:
                group.create_task(kept.keep(publisher.events))
    finally:
        for thread in threads:
            thread.stop()
        publisher.put_usages()
        await _flush(*publisher.outboxes)
        if kept is not None:
            await kept.finish(publisher.events)


def _recovery(context: Context, boot: str, kept: ContainerFile | None) -> MemoryLoader:
    """Return what reads the announced containers of an earlier run: from the file, or else from the stream."""
    if kept is not None:
        return kept.load
    settings = context.settings
    return partial(
        agent_recovery.read,
        context.client,
        Names(settings.prefix),
        node=settings.sample.node_name,
        boot=boot,
        timeout_seconds=settings.nats.request_timeout_seconds,
    )


class _Publisher:
    """The agent's outboxes, and under which subject and id each message goes out.

    Attributes:
        events: Outbox of container events.
    """

    def __init__(self, context: Context, refine: Refine, boot: str, kept: ContainerFile | None) -> None:
        self._kept = kept
        sample, runtime = context.settings.sample, context.settings.runtime
        self._names, self._node, self._boot, self._refine = (
            Names(context.settings.prefix),
            sample.node_name,
            boot,
            refine,
        )
        sealer = identity.stored(context.settings.data.dir)
        self._blocks = _outbox(context, sealer, refine.kind, sample.buffer_blocks)
        self._usages = _outbox(context, sealer, "pods", sample.buffer_blocks, _USAGES_IN_FLIGHT)
        self._usages.restrict(_USAGE_BYTES)
        self.events = _outbox(context, sealer, "containers", runtime.buffer_events, _EVENTS_IN_FLIGHT)
        for outbox in (self._usages, self.events):  # far from the blocks of their second they do not count
            outbox.follow(self._blocks)
        self._kept_usages: deque[tuple[int, bytes]] = deque()

    @property
    def outboxes(self) -> tuple[Outbox, ...]:
        """All outboxes."""
        return self._blocks, self._usages, self.events

    def put_block(self, seq: int, payload: bytes) -> None:
        """Take a block of samples, and send the kept usage before it."""
        self.put_usages()
        if refined := self._refine.block(payload):
            subject = self._names.node(self._refine.kind, self._node)
            self._blocks.put(subject, refined, self._refine.identity(self._node, self._boot, seq), second=seq)

    def keep_usage(self, seq: int, payload: bytes) -> bool:
        """Keep a block of what each pod used until the block of samples 50 ms later; may be called in any thread.

        Each message that is sent by itself wakes this process and the server twice, which costs more than to make it.

        Returns:
            An earlier one still waits, so no samples come: call `put_usages`.
        """
        self._kept_usages.append((seq, payload))
        return len(self._kept_usages) > 1

    def put_usages(self) -> None:
        """Send the kept blocks of usage."""
        while self._kept_usages:
            seq, payload = self._kept_usages.popleft()
            subject, happening = self._names.node("pods", self._node), f"pods:{self._node}:{self._boot}:{seq}"
            self._usages.put(subject, payload, happening, second=seq)

    def put_event(self, event: ContainerEvent) -> None:
        """Take an event of a container."""
        happening = f"containers:{self._node}:{self._boot}:{event.boottime_us}:{event.container}:{event.event}"
        payload = codec.encode(event)
        self._refine.event(payload)
        if self._kept is not None:
            self._kept.note(event)
        second = event.boottime_us // 1_000_000
        self.events.put(self._names.node("containers", self._node), payload, happening, second=second)


def _containers_file(context: Context, boot: str) -> ContainerFile | None:
    """Return the file of announced containers, if the agent's credential does not let it read them in the stream."""
    settings = context.settings
    telemetry = Names(settings.prefix).telemetry
    if context.client.may_publish(f"$JS.API.CONSUMER.CREATE.{telemetry}"):
        return None
    return ContainerFile(
        settings.data.dir / "run" / f"containers.{settings.prefix}.json",
        node=settings.sample.node_name,
        boot=boot,
        max_age_seconds=settings.nats.telemetry_max_age_seconds,
    )


def _threads(
    settings: Settings,
    boot: str,
    follower: Follower,
    emit_block: Callable[[int, bytes], None],
    emit_usage: Callable[[int, bytes], None],
) -> list[Sampler | Ticker]:
    """Return the threads that measure: the sampler, and unless usage by pod is off, its reader."""
    sample = settings.sample
    census = Census(sample.cgroup, sample.proc)
    reader = usage.Reader(
        census,
        sample.cgroup,
        sample.proc,
        node=sample.node_name,
        boot=boot,
        identify=follower.registry.get,
        descriptors=file.allow_descriptors(),
    )
    sampler = Sampler(
        inventory.default(sample, census, reader),
        node=sample.node_name,
        boot=boot,
        interval_seconds=sample.interval_seconds,
        emit=emit_block,
    )
    return [sampler, Ticker(reader, emit_usage)] if settings.runtime.usage else [sampler]


def _outbox(context: Context, sealer: identity.Sealer, kind: str, limit: int, in_flight: int = 1) -> Outbox:
    timeout_seconds = context.settings.nats.request_timeout_seconds
    return Outbox(
        context.client,
        context.health,
        limit=limit,
        timeout_seconds=timeout_seconds,
        kind=kind,
        in_flight=in_flight,
        sealer=sealer,
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
