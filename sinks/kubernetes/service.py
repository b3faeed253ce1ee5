"""The Kubernetes sink as a service: one cache for each kind of object, and four parts that write.

Each part compares the API server's state with the wanted one, so the sink stores nothing between restarts. If a part
cannot write, it reports the problem and the others go on. The parts compare every few seconds, because an API server
must not receive a write for each change of a value.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from bus.client import Client
from bus.health import Health
from kube import api
from kube.api import Api
from schemas.live import Live
from schemas.sections.output import Output
from sinks.kubernetes import autoscaler, latest, metric, node
from sinks.kubernetes.floor import Floor
from sinks.kubernetes.full import Full
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.metric import Metric
from sinks.kubernetes.mid import Mid
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer

log = logging.getLogger(__name__)

_WITHIN = 0.8  # of the time after which any change is written
_END_SECONDS = 2.5
_SOON_SECONDS = 1.0

Refresh = Callable[[Writer], Awaitable[bool]]


async def run(client: Client, live: Live, health: Health, *, clock: Callable[[], float] = time.time) -> None:
    """Write until cancelled; then restore the floors that are raised, and remove the marks of nodes.

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
    output, latest_messages, sender = settings.output, Latest(), Api(settings.kube)
    pace = Pace(output.writes_per_second, _WITHIN * output.force_seconds)
    nodes = Objects("nodes", node.reader(output))
    metrics = Objects(metric.RESOURCE, metric.read)
    scalers = Objects(autoscaler.RESOURCE, autoscaler.reader(output.floor_annotation))
    floor = Floor(sender, scalers, latest_messages, output, clock)
    full = Full(sender, nodes, latest_messages, output, health, clock)
    soon = min(output.look_seconds, _SOON_SECONDS)
    parts: list[tuple[Refresh, Writer, float]] = [
        (Mid(sender, nodes, latest_messages, output, clock).refresh, Writer("mid", health, pace), output.look_seconds),
        (
            Metric(sender, nodes, metrics, latest_messages, settings, clock).refresh,
            Writer("metric", health, pace),
            output.look_seconds,
        ),
        (floor.refresh, Writer("floor", health, pace), output.look_seconds),
        # Pods wait for it, so it looks more often and writes faster; a node keeps its marks for long.
        (full.refresh, Writer("full", health, pace, output.full_seconds), soon),
    ]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(latest.follow(client, settings, latest_messages, clock))
            group.create_task(nodes.follow(settings.kube, partial(_report, health, "nodes", _needs_nodes(output))))
            group.create_task(scalers.follow(settings.kube, partial(_report, health, "autoscalers", output.floor)))
            if output.metrics:
                group.create_task(metrics.follow(settings.kube, partial(_report, health, "nodemetrics", True)))
            for part in parts:
                group.create_task(_repeat(*part))
    finally:
        await _end(floor, full)
        await sender.close()


async def _end(floor: Floor, full: Full) -> None:
    """Take back what must not outlive the sink, within the time that a service has to end."""
    try:
        async with asyncio.timeout(_END_SECONDS):
            await asyncio.gather(floor.end(), full.end())
    except TimeoutError:
        log.warning(
            "floor.restore_failed", extra={"reason": "the API server is slow", "remedy": "start the sink once more"}
        )


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
        health.degrade(f"kubernetes {part}", trouble + metric.MEND * trouble.endswith("CustomResourceDefinition"))
