"""Run the sources, merge their observations, and emit container events.

The follower counts failures of a source, logs each reason once, and restarts the source after a pause that grows: up
to the rescan time if a resource is inaccessible or gone, which is cheap to retry, and up to `_LONGEST_SECONDS` if its
data is malformed. The other sources continue.

An agent that starts reads the events that were published for this node before (`load_memory`), for at most
`_REMEMBER_SECONDS`. Containers that were alive then and that no source lists have exited.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from prometheus_client import Counter

from producers import clock as grid
from producers.containers import label
from producers.containers.merge import Merge
from producers.containers.published import Happening, Memory
from producers.containers.registry import Registry
from producers.containers.sources.source import Identity, Observation, Source
from producers.source import FAILURES
from schemas.messages.telemetry import ContainerEvent

log = logging.getLogger(__name__)

OBSERVATIONS = Counter(
    "spazio_container_observations_total", "what container sources have seen happen", ["source", "event"]
)
EVENTS = Counter("spazio_container_events_total", "container events that were published", ["event"])

_IDENTITY = [field.name for field in fields(Identity)]
_FIRST_SECONDS = 0.1
_LONGEST_SECONDS = 10.0
_REMEMBER_SECONDS = 3.0
_SETTLE_SECONDS = 1.0

MemoryLoader = Callable[[], Awaitable[Memory]]


class Follower:
    """Follows the containers of one node.

    Args:
        sources: Sources, the best first.
        node: The node's name.
        boot: Identifier of this boot of its kernel.
        emit: Takes each event, in order, in the event loop's thread; must not block.
        rescan_seconds: Longest pause before a source that is closed or gone is tried again.
        clock: Time since boot and time of day.

    Attributes:
        registry: Identities of the node's containers and pods.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        node: str,
        boot: str,
        emit: Callable[[ContainerEvent], None],
        rescan_seconds: float,
        clock: grid.Clock | None = None,
    ) -> None:
        self._sources, self._node, self._boot, self._emit = sources, node, boot, emit
        self._rescan_seconds, self._clock = rescan_seconds, clock or grid.System()
        self.registry = Registry()
        self._merge = Merge(self.registry)
        self._failing: dict[str, str] = {}
        self._silent = {source.name for source in sources}
        self._listed, self._heard = (
            asyncio.Event(),
            asyncio.Event(),
        )  # set by the first listing; set after a listing or failure of every source

    async def run(self, load_memory: MemoryLoader) -> None:
        """Follow until cancelled; return at once without sources.

        Args:
            load_memory: Reads the events that were published for the node before.
        """
        if not self._sources:
            return
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._keep_running(source))
            group.create_task(self._begin(load_memory))

    def observe(self, observation: Observation) -> None:
        """Process one observation."""
        OBSERVATIONS.labels(observation.source, observation.event).inc()
        self._publish(self._merge.observe(observation))

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        """Process a complete listing; a source that lists has recovered."""
        if self._failing.pop(source, None) is not None:
            log.info("containers.recovered", extra={"source": source})
        self._publish(self._merge.present(source, listed, boottime_us))
        self._listed.set()
        self._mark_heard(source)

    async def _begin(self, load_memory: MemoryLoader) -> None:
        memory = Memory()
        try:
            async with asyncio.timeout(_REMEMBER_SECONDS):
                memory = await load_memory()
        except TimeoutError:
            log.warning("containers.forgotten", extra={"reason": f"no answer within {_REMEMBER_SECONDS:g} s"})
        self._publish(self._merge.remember(memory, self._now()))
        await self._listed.wait()
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._heard.wait()
        except TimeoutError:
            log.debug("containers.silent", extra={"sources": sorted(self._silent)})
        self._publish(self._merge.settle(self._now()))

    async def _keep_running(self, source: Source) -> None:
        loop, pause = asyncio.get_running_loop(), _FIRST_SECONDS
        while True:
            began = loop.time()
            try:
                await source.run(self)
                reason, longest = "the source ended", _LONGEST_SECONDS
            except OSError as error:
                reason, longest = _reason(error), self._rescan_seconds
            except Exception as error:  # noqa: BLE001 - no failure of one source may stop the others
                reason, longest = _reason(error), _LONGEST_SECONDS
            if loop.time() - began > longest:
                pause = _FIRST_SECONDS
            self._fail(source.name, reason)
            await asyncio.sleep(min(pause, longest))
            pause = min(2 * pause, longest)

    def _fail(self, source: str, reason: str) -> None:
        FAILURES.labels(source).inc()
        if self._failing.get(source) != reason:
            log.warning("containers.failed", extra={"source": source, "reason": reason})
        self._failing[source] = reason
        self._mark_heard(source)

    def _mark_heard(self, source: str) -> None:
        self._silent.discard(source)
        if not self._silent:
            self._heard.set()

    def _publish(self, happenings: list[Happening]) -> None:
        for happening in happenings:
            EVENTS.labels(happening.event).inc()
            self._emit(self._event(happening))

    def _event(self, happening: Happening) -> ContainerEvent:
        realtime, boottime = self._clock.realtime() // 1000, self._clock.boottime() // 1000
        return ContainerEvent(
            node=self._node,
            boot=self._boot,
            at_us=max(0, realtime - boottime + happening.boottime_us),
            boottime_us=happening.boottime_us,
            event=happening.event,
            sources=list(happening.sources),
            **{name: _clean(getattr(happening.identity, name)) for name in _IDENTITY},
        )

    def _now(self) -> int:
        return self._clock.boottime() // 1000


def happening(event: ContainerEvent) -> Happening:
    """Return the happening of a published event."""
    identity = Identity(**{name: getattr(event, name) for name in _IDENTITY})
    return Happening(event.event, identity, tuple(event.sources), event.boottime_us)


def _clean(value: Any) -> Any:
    return label.text(value) if isinstance(value, str) else value


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) and error.strerror else repr(error)
