"""The Kubernetes sink as a service: one cache for each kind of object, and four parts that write.

Each part compares the API server's state with the wanted one, so the sink stores nothing between restarts. If a part
cannot write, it reports the problem and the others go on. The parts compare every few seconds, because an API server
must not receive a write for each change of a value. Beside them it may serve forecasts as external metrics.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from bus.client import Client
from bus.health import Health
from kube import answer, api
from kube.api import Api
from schemas.live import Live
from schemas.sections.output import Output
from schemas.settings import Settings
from sinks.kubernetes import autoscaler, latest, metric, node
from sinks.kubernetes.external import server
from sinks.kubernetes.floor import Floor
from sinks.kubernetes.full import Full
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.metric import Metric
from sinks.kubernetes.mid import Mid
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.access import Access
from sinks.kubernetes.writing.holder import Holder
from sinks.kubernetes.writing.lease import Lease
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer

log = logging.getLogger(__name__)

_WITHIN = 0.8  # of the time after which any change is written
_END_SECONDS, _RELEASE_SECONDS = 2.2, 0.5  # of the three that a service has to end
_SOON_SECONDS = 1.0

Refresh = Callable[[Writer], Awaitable[bool]]


async def run(client: Client, live: Live, health: Health, *, clock: Callable[[], float] = time.time) -> None:
    """Write until cancelled; then restore raised floors, and remove Mid-tier resources and marks of nodes.

    Args:
        client: Connection to the bus.
        live: Settings.
        health: Receives problems of watches and writes.
        clock: Seconds since the epoch.

    Raises:
        SettingsError: No API server is known, or its settings are invalid.
    """
    settings = live.current
    await api.address(settings.kube)
    sink = _Sink(settings, health, clock)
    async with server.serving(sink.latest, settings.output, clock):
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(latest.follow(client, settings, sink.latest, clock))
                for task in sink.tasks():
                    group.create_task(task)
        finally:
            await sink.end()


class _Sink:
    """The parts of the sink.

    Attributes:
        latest: The newest messages.
    """

    def __init__(self, settings: Settings, health: Health, clock: Callable[[], float]) -> None:
        self.latest = Latest()
        self._settings, self._health = settings, health
        output, self._api, latest = settings.output, Api(settings.kube), self.latest
        self._pace = Pace(output.writes_per_second, _WITHIN * output.force_seconds)
        self._nodes = Objects("nodes", node.reader(output))
        self._metrics = Objects(metric.RESOURCE, metric.read)
        self._scalers = Objects(autoscaler.RESOURCE, autoscaler.reader(output.floor_annotation))
        self._lease = Holder(Lease(self._api, output.full_lease, output.full_lease_seconds), health)
        access = Access(self._api, self._nodes, latest, output, self._lease, clock)
        self._floor, self._full, self._mid = Floor(access, self._scalers), Full(access), Mid(access)
        self._metric = Metric(self._api, self._nodes, self._metrics, latest, settings, clock)

    def tasks(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what runs until it is cancelled."""
        kube, output = self._settings.kube, self._settings.output
        look, soon = output.look_seconds, min(output.look_seconds, _SOON_SECONDS)
        yield self._nodes.follow(kube, self._reporter("nodes", _needs_nodes(output)))
        yield self._scalers.follow(kube, self._reporter("autoscalers", output.floor))
        if output.metrics:
            yield self._metrics.follow(kube, self._reporter("nodemetrics", True))
        yield self._lease.keep(lambda: self._mid.needed or self._full.needed or self._floor.needed, soon)
        yield _repeat(self._mid.refresh, self._writer("mid"), look)
        yield _repeat(self._metric.refresh, self._writer("metric"), look)
        yield _repeat(self._floor.refresh, self._writer("floor"), look)
        # Pods wait for it, so it looks more often and writes faster; a node keeps its marks for long.
        yield _repeat(self._full.refresh, self._writer("full", output.full_seconds), soon)

    async def end(self) -> None:
        """Take back what must not outlive the sink, within the time that a service has to end."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                await asyncio.gather(self._floor.end(), self._full.end(), self._mid.end())
        except TimeoutError:
            reason = "the API server is slow, or nodes are many"
            log.warning("sink.restore_failed", extra={"reason": reason, "remedy": "start the sink once more"})
        # The next process takes over at once, and removes what is left.
        with contextlib.suppress(TimeoutError, answer.Trouble):
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._lease.release()
        await self._api.close()

    def _reporter(self, part: str, needed: bool) -> Callable[[str | None], None]:
        return partial(_report, self._health, part, needed)

    def _writer(self, what: str, within_seconds: float | None = None) -> Writer:
        return Writer(what, self._health, self._pace, within_seconds)


async def _repeat(refresh: Refresh, writer: Writer, seconds: float) -> None:
    while True:
        looked = await refresh(writer)
        await asyncio.sleep(seconds if looked and not writer.raced else min(seconds, _SOON_SECONDS))


def _needs_nodes(output: Output) -> bool:
    return output.mid or output.metrics or output.full or output.keep


def _report(health: Health, part: str, needed: bool, trouble: str | None) -> None:
    """Report a kind of object that cannot be followed, if a part needs it."""
    if not needed:
        return
    if trouble is None:
        health.recover(f"kubernetes {part}")
    else:
        health.degrade(f"kubernetes {part}", trouble + metric.REMEDY * trouble.endswith("CustomResourceDefinition"))
