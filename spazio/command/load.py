"""`spazio load`: simulated nodes as a load generator.

Each node has its own offset within a second, as real ones do, so messages are spread evenly. The schedule follows event
time: late messages stay late and are reported, instead of slowing the simulation down. With `prepared_seconds` messages
are prepared once and sent repeatedly, so that the load costs no more than sending. With `follow` the nodes and pods are
those of a watched cluster.
"""

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from bus.client import Client
from bus.health import Health
from bus.publishing.pipeline import Outgoing
from producers.simulated.cluster import Cluster
from producers.simulated.message import Timed, Writer
from schemas.sections.bus import Http
from schemas.sections.generator import Simulated
from schemas.settings import Settings
from schemas.subject import Names
from spazio import count
from spazio.generator.cluster import Follow
from spazio.generator.sending import Sending
from spazio.service import service
from spazio.service.service import Context
from spazio.terminal import clean, latest

log = logging.getLogger(__name__)

_DEFAULT_NODES = 100
_TICK_SECONDS = 0.01
_AT_ONCE = 500
_DRAIN_SECONDS = 10.0
_SECOND_US = 1_000_000
_LEAD_SECONDS = 0.2  # between the beginning of event time and the first message

_by_due = attrgetter("due_us")


class Due(NamedTuple):
    """A message, and when to send it in microseconds since the beginning; `later` as in `Timed.payload`."""

    due_us: int
    message: Timed
    later: int


def run(settings: Settings, *, json_output: bool) -> int:
    """Simulate nodes, or follow a cluster, until the time is over or a signal arrives; return the exit status.

    Unlike a service it does not wait for a server that is not there yet: 1. That is the status too if the server has
    stored nothing, or has not answered for all at the end.
    """
    try:
        asyncio.run(_reach(settings))
    except latest.Unreachable as error:
        clean.complain(error)
        return error.status
    if not settings.simulated.nodes:
        settings = _changed(settings, nodes=_DEFAULT_NODES)
    if settings.http.port == Http().port:  # a pipeline on this machine may use the default port
        settings = settings.model_copy(update={"http": settings.http.model_copy(update={"port": 0})})
    reached: dict[str, Any] = {}
    over = False

    async def work(context: Context) -> None:
        nonlocal over
        follows = context.settings.simulated.follow
        load = Follow(context) if follows else Load(context.client, context.settings, context.health)
        try:
            await load.run()
            over = True
        finally:
            reached.update(load.reached())

    status = service.run("load", settings, work, streams=False)
    if reached:
        print(json.dumps(reached) if json_output else sentence(reached), flush=True)
    if not status and (failure := _failure(reached, over=over)):
        clean.complain(failure)
        return 1
    return status


def _failure(reached: dict[str, Any], *, over: bool) -> str:
    """Return why a run has not done what it was for; empty: it has.

    Args:
        reached: Its statistics; empty: a signal ended it before it had begun.
        over: It has ended by itself. At a signal, messages on their way are none of its concern, only refused ones.
    """
    if not reached:
        return ""
    if reached["nodes"] and not reached["stored"] and (over or reached["refused"]):
        return f"the server stored nothing{''.join(f'; {reason}' for reason in reached['refused'])}"
    if over and reached["unanswered"]:
        return f"the server has not acknowledged {count.of(reached['unanswered'], 'message')}"
    return ""


async def _reach(settings: Settings) -> None:
    sys.stderr.write(f"spazio: connecting to {settings.nats_shown}\n")
    async with latest.dial(settings):
        pass


def sentence(reached: dict[str, Any]) -> str:
    """Return the statistics as text."""
    return (
        f"{count.of(reached['nodes'], 'node')} for {reached['seconds']:.1f} s: "
        f"{count.of(reached['stored'], 'message')} stored, {reached['rate']:.0f} a second; "
        f"at most {reached['lag_seconds_max']:.2f} s behind schedule; "
        f"{reached['resent']} sent again, {reached['unanswered']} unanswered, "
        f"{count.of(sum(reached['refused'].values()), 'attempt')} refused; {reached['cpu_share']:.0%} of a core"
    )


class Load:
    """One run of the load generator."""

    def __init__(self, client: Client, settings: Settings, health: Health) -> None:
        own = settings.simulated
        self._own = own
        self._start_us = own.start_us or time.time_ns() // 1000
        cluster = Cluster(
            own.nodes,
            seed=own.seed,
            churn_per_minute=0 if own.prepared_seconds else own.churn_per_minute,
            wave_seconds=own.wave_seconds,
        )
        self._writer = Writer(cluster, self._start_us, own.kinds, own.metrics)
        self._seconds = _Prepared(cluster, self._writer, own) if own.prepared_seconds else _Live(cluster, self._writer)
        names = Names(settings.prefix)
        self._subjects = {kind: [names.node(kind, node).encode() for node in cluster.fleet.name] for kind in own.kinds}
        self._identities = {
            kind: [
                f"{kind}:{node}:{boot}:".encode()
                for node, boot in zip(cluster.fleet.name, self._writer.boot, strict=True)
            ]
            for kind in own.kinds
        }
        self._sending = Sending(client, settings, health)
        self._pipeline = self._sending.pipeline
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Send until the time is over, or until cancelled; wait only briefly for a server that stores nothing."""
        async with asyncio.TaskGroup() as group, self._pipeline:
            helpers = [group.create_task(self._pipeline.run()), group.create_task(self._sending.report())]
            helpers.append(group.create_task(self._sending.watch_health()))
            try:
                await self._send_all()
                await self._pipeline.drain(_DRAIN_SECONDS)
            except TimeoutError as error:
                log.error("load.aborted", extra={"reason": str(error)})  # noqa: TRY400 # the reason is enough
            finally:
                self._sending.end()
                for helper in helpers:
                    helper.cancel()

    def reached(self) -> dict[str, Any]:
        """Return the statistics so far."""
        return {"nodes": self._own.nodes, **self._sending.reached(), "start_us": self._start_us}

    async def _send_all(self) -> None:
        own = self._own
        number = 0
        waiting = [Due(message.due_us, message, 0) for message in self._writer.begin()]
        waiting.sort(key=_by_due)
        self._anchor()
        coming = asyncio.ensure_future(asyncio.to_thread(self._seconds.make, number))
        try:
            while not own.seconds or number < own.seconds:
                made = await coming
                number += 1
                coming = asyncio.ensure_future(asyncio.to_thread(self._seconds.make, number))
                waiting += made
                waiting.sort(key=_by_due)
                waiting = await self._send_until(number * _SECOND_US, waiting)
            await self._send_until((number + 2) * _SECOND_US, waiting)
        finally:
            coming.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await coming

    def _anchor(self) -> None:
        """Let event time begin now, after the preparation."""
        if not self._own.start_us:
            self._start_us = self._writer.start_us = time.time_ns() // 1000 + round(_LEAD_SECONDS * 1e6)
        self._sending.begin(self._loop.time() + _LEAD_SECONDS)

    async def _send_until(self, end_us: int, waiting: list[Due]) -> list[Due]:
        """Send the messages that are due before a time, each when it is due; return the others."""
        position, speed, started = 0, self._own.speed, self._sending.began
        while position < len(waiting) and waiting[position].due_us < end_us:
            now_us = (self._loop.time() - started) * speed * _SECOND_US
            until = min(now_us, end_us - 1)
            stop = position
            while stop < len(waiting) and waiting[stop].due_us <= until and stop - position < _AT_ONCE:
                stop += 1
            if stop == position:
                due = started + waiting[position].due_us / speed / _SECOND_US
                await asyncio.sleep(max(_TICK_SECONDS, due - self._loop.time()))
                continue
            self._sending.note_lag((now_us - waiting[position].due_us) / _SECOND_US / speed)
            part = [self._outgoing(*due) for due in waiting[position:stop]]
            await self._pipeline.send(part, until=self._patience())
            position = stop
        return waiting[position:]

    def _patience(self) -> float | None:
        """Return the deadline for room in the pipeline: some time after the end; later if the server is slow."""
        own, now = self._own, self._loop.time()
        return max(self._sending.began + own.seconds / own.speed, now) + _DRAIN_SECONDS if own.seconds else None

    def _outgoing(self, _: int, message: Timed, later: int) -> Outgoing:
        kind, node = message.kind, message.node
        end = message.identity or b"%d" % (message.seq + later)
        return Outgoing(
            self._subjects[kind][node], message.payload(self._start_us, later), self._identities[kind][node] + end
        )


class _Live:
    """Simulates each second when it is needed."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster, self._writer = cluster, writer

    def make(self, _number: int) -> list[Due]:
        """Return the messages of the next second."""
        return [Due(message.due_us, message, 0) for message in self._writer.write(self._cluster.step())]


class _Prepared:
    """Repeats prepared seconds."""

    def __init__(self, cluster: Cluster, writer: Writer, own: Simulated) -> None:
        self._made = [writer.write(cluster.step()) for _ in range(own.prepared_seconds)]

    def make(self, number: int) -> list[Due]:
        """Return the messages of a second."""
        later = number - number % len(self._made)
        return list(self._moved(self._made[number % len(self._made)], later))

    def _moved(self, messages: list[Timed], later: int) -> Iterator[Due]:
        for message in messages:
            yield Due(message.due_us + later * _SECOND_US, message, later)


def _changed(settings: Settings, **fields: Any) -> Settings:
    return settings.model_copy(update={"simulated": settings.simulated.model_copy(update=fields)})
