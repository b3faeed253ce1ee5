"""The Kubernetes sink as a service: one account of each kind of object, and three parts that write.

All of it is what is there against what is known: nothing is kept from one life to the next, and a part that cannot
write says so and leaves the others alone. Objects are looked at every few seconds, since nobody may ask an API server
to take a write each time that a figure moves.
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
from sinks.kubernetes import autoscaler, latest, metric, node
from sinks.kubernetes.floor import Floor
from sinks.kubernetes.latest import Said
from sinks.kubernetes.metric import Metric
from sinks.kubernetes.mid import Mid
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writer import Pace, Writer

log = logging.getLogger(__name__)

_WRITES_PER_SECOND = 20.0
_END_SECONDS = 2.5
_SOON_SECONDS = 1.0

Look = Callable[[Writer], Awaitable[bool]]


async def run(client: Client, live: Live, health: Health, *, clock: Callable[[], float] = time.time) -> None:
    """Write until cancelled; then restore the floors that are raised.

    Args:
        client: Connection to the bus.
        live: Settings.
        health: Told what cannot be followed or written.
        clock: Seconds since the epoch.

    Raises:
        SettingsError: No API server is known, or what is said of it cannot be used.
    """
    settings = live.current
    await api.address(settings.kube)
    output, known, sender, pace = settings.output, Said(), Api(settings.kube), Pace(_WRITES_PER_SECOND)
    nodes = Objects("nodes", node.reader(output))
    metrics = Objects(metric.RESOURCE, metric.read)
    scalers = Objects(autoscaler.RESOURCE, autoscaler.reader(output.floor_annotation))
    floor = Floor(sender, scalers, known, output, clock)
    parts: list[tuple[str, Look]] = [
        ("mid", Mid(sender, nodes, known, output, clock).look),
        ("metric", Metric(sender, nodes, metrics, known, settings, clock).look),
        ("floor", floor.look),
    ]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(latest.follow(client, settings, known, clock))
            group.create_task(nodes.follow(settings.kube, partial(_say, health, "nodes", output.mid or output.metrics)))
            group.create_task(scalers.follow(settings.kube, partial(_say, health, "autoscalers", output.floor)))
            if output.metrics:
                group.create_task(metrics.follow(settings.kube, partial(_say, health, "nodemetrics", True)))
            for name, look in parts:
                group.create_task(_repeat(look, Writer(name, health, pace), output.look_seconds))
    finally:
        try:
            async with asyncio.timeout(_END_SECONDS):
                await floor.end()
        except TimeoutError:
            log.warning("floor.left", extra={"reason": "the API server is slow", "mend": "start the sink once more"})
        await sender.close()


async def _repeat(look: Look, writer: Writer, seconds: float) -> None:
    while True:
        looked = await look(writer)
        await asyncio.sleep(seconds if looked and not writer.raced else min(seconds, _SOON_SECONDS))


def _say(health: Health, part: str, needed: bool, trouble: str | None) -> None:
    """Tell of a kind of object that cannot be followed; of one that is only tidied up, nothing."""
    if not needed:
        return
    if trouble is None:
        health.recover(f"kubernetes {part}")
    else:
        health.degrade(f"kubernetes {part}", trouble + metric.MEND * trouble.endswith("CustomResourceDefinition"))
