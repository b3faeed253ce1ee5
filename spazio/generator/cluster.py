"""`spazio load --follow true`: telemetry of nodes that exist only in the API server.

A KWOK cluster has nodes and pods, but nothing runs, so no agent can measure it. Here every node that the cluster watch
knows gets the telemetry that it would have if its pods ran. The initial state comes from the buckets, all later states
from the stream, which has each state of every object with the time of the watch event.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from typing import Any

from bus import errors, stream, subscription
from bus.publishing.pipeline import Outgoing
from bus.reading.reader import Reader
from bus.subscription import Subscription
from producers.simulated.mirror import Mirror
from producers.simulated.mirror_text import Published
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.subject import Names
from spazio.generator.sending import Sending
from spazio.service.service import Context

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_GRACE_SECONDS = 0.1  # facts arrive within about this time, so a second is published after it
_AWAY_SECONDS = 0.5
_SILENCE_SECONDS = 1.0
_ASK_SECONDS = 0.1
_DEAF_SECONDS = 5.0
_DRAIN_SECONDS = 5.0
_MOST_DOUBTS = 1000
_KINDS: dict[str, type[NodeFacts | PodFacts]] = {"nodefacts": NodeFacts, "podfacts": PodFacts}

_NO_WATCH = "there are no facts to follow yet: start `spazio watch` on this server"
_DEAF = "the server does not confirm that all facts have arrived: nodes are silent until it does"


class Follow:
    """Simulated telemetry of a cluster that is watched."""

    def __init__(self, context: Context) -> None:
        """Start without nodes.

        Args:
            context: Connection, settings and health of the service.
        """
        settings = context.settings
        self._own, self._client, self._health = settings.simulated, context.client, context.health
        self._names, self._timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
        self._start_us = self._own.start_us or time.time_ns() // 1000
        self._doubts: set[str] = set()
        self._mirror = Mirror(self._own.seed, self._start_us, self._doubt)
        self._sending = Sending(context.client, settings, context.health)
        self._loop = asyncio.get_running_loop()
        self._confirmed = self._loop.time()  # all facts until then have arrived

    async def run(self) -> None:
        """Follow until the time is over, or until cancelled."""
        sending = self._sending
        async with asyncio.TaskGroup() as group, sending.pipeline:
            helpers = [
                group.create_task(work()) for work in (sending.pipeline.run, sending.report, sending.watch_health)
            ]
            try:
                helpers.append(group.create_task(self._read(await self._fill())))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._own.seconds or None):
                        await self._publish()
                await sending.pipeline.drain(_DRAIN_SECONDS)
            finally:
                sending.end()
                for helper in helpers:
                    helper.cancel()

    def reached(self) -> dict[str, Any]:
        """Return what was reached so far."""
        pods = sum(map(len, self._mirror.guests.values()))
        nodes = len(self._mirror.machines)
        return {"nodes": nodes, "pods": pods, **self._sending.reached(), "start_us": self._start_us}

    async def _fill(self) -> int:
        """Read the current state; return the stream sequence after which all later states are."""
        last = (await self._described(self._names.telemetry)).last
        self._confirmed = self._loop.time()
        buckets: list[tuple[str, type[NodeFacts | PodFacts]]] = [
            (self._names.nodes_bucket, NodeFacts),
            (self._names.pods_bucket, PodFacts),
        ]
        for bucket, kind in buckets:
            await self._fill_from(bucket, kind)
        self._health.recover("follow")
        return last

    async def _fill_from(self, bucket: str, kind: type[NodeFacts | PodFacts]) -> None:
        name = f"KV_{bucket}"
        last = (await self._described(name)).last
        reader = Reader(self._client, name, [f"$KV.{bucket}.>"], newest=True, timeout_seconds=self._timeout)
        # Refused messages mark deletions; others are buried by the services that store them.
        async with Subscription(reader, subscription.of(kind, by_node=False), subscription.ignore) as facts:
            while facts.position < last:
                batch = await facts.read(timeout_seconds=_SILENCE_SECONDS)
                for each in batch.messages:
                    self._take(each.message)
                if not batch.received and not batch.pending:
                    return  # the last message was removed meanwhile

    async def _described(self, name: str) -> stream.Stream:
        while True:
            try:
                return await stream.describe(self._client, name)
            except errors.NotFound:
                self._health.degrade("follow", _NO_WATCH)
            except errors.REQUEST_FAILED as error:
                log.debug("stream.describe_failed", extra={"stream": name, "reason": repr(error)})
            await asyncio.sleep(_AWAY_SECONDS)

    async def _read(self, after: int) -> None:
        subjects = [self._names.part("*", kind) for kind in _KINDS]
        reader = Reader(self._client, self._names.telemetry, subjects, after=after, timeout_seconds=self._timeout)
        decode = subscription.by_kind(_KINDS, by_node=False)
        async with (
            Subscription(
                reader, decode, subscription.ignore
            ) as facts,  # services that store them bury refused messages
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._confirm(reader))
            async for batch in facts:
                telemetry: list[Published] = []
                for each in batch.messages:
                    telemetry += self._take(each.message)
                await self._send(telemetry)

    async def _confirm(self, reader: Reader) -> None:
        """Ask the server repeatedly whether all facts have arrived, until cancelled."""
        while True:
            asked = self._loop.time()
            try:
                if await reader.whole():
                    self._confirmed = asked
            except errors.REQUEST_FAILED as error:
                log.debug("facts.confirmation_failed", extra={"reason": repr(error)})
            await asyncio.sleep(_ASK_SECONDS)

    def _take(self, facts: NodeFacts | PodFacts) -> list[Published]:
        if isinstance(facts, PodFacts):
            return list(self._mirror.hear_pod(facts))
        self._mirror.hear_node(facts)
        return []

    def _doubt(self, reason: str) -> None:
        """Log a reason once; many pods may have it."""
        if reason not in self._doubts and len(self._doubts) < _MOST_DOUBTS:
            self._doubts.add(reason)
            log.warning("follow.usage_unreadable", extra={"reason": reason})

    async def _publish(self) -> None:
        due = self._loop.time()
        while True:
            self._sending.note_lag(max(0.0, self._loop.time() - due))
            # After a pause or an outage the newest facts are missing, and a node would lack its newest pods.
            unsure = self._loop.time() - self._confirmed
            await self._send(self._mirror.tell(time.time_ns() // 1000 - round((unsure + _GRACE_SECONDS) * 1e6)))
            if unsure > _DEAF_SECONDS:
                self._health.degrade("facts", _DEAF)
            else:
                self._health.recover("facts")
            due = max(due, self._loop.time()) + _TICK_SECONDS
            await asyncio.sleep(due - self._loop.time())

    async def _send(self, telemetry: Iterable[Published]) -> None:
        """Publish the messages of the chosen kinds."""
        messages = [
            Outgoing(
                self._names.node(each.kind, each.node).encode(), each.payload, f"{each.kind}:{each.identity}".encode()
            )
            for each in telemetry
            if each.kind in self._own.kinds
        ]
        if messages:
            await self._sending.pipeline.send(messages)
