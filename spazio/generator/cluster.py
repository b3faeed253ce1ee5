"""`spazio load --follow true`: telemetry of nodes that exist for the API server only.

A cluster of KWOK has nodes and pods, but nothing runs, so no agent can measure it. Here every node that the cluster
watch knows gets the telemetry that it would have if its pods ran. What is there at the start comes from the buckets,
what follows from the stream, which has each state of every object with the time at which it was heard of.
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
from producers.simulated.mirror_text import Said
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.subject import Names
from spazio.generator.sending import Sending
from spazio.service.service import Context

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_GRACE_SECONDS = 0.1  # facts take about so long to come; a second is told of after it
_AWAY_SECONDS = 0.5
_SILENCE_SECONDS = 1.0
_ASK_SECONDS = 0.1
_DEAF_SECONDS = 5.0
_DRAIN_SECONDS = 5.0
_MOST_DOUBTS = 1000
_KINDS: dict[str, type[NodeFacts | PodFacts]] = {"nodefacts": NodeFacts, "podfacts": PodFacts}

_NO_WATCH = "there are no facts to follow yet: start `spazio watch` on this server"
_DEAF = "the server does not say whether all facts have come: nodes are silent until it does"


class Follow:
    """Simulated telemetry of a cluster that is watched."""

    def __init__(self, context: Context) -> None:
        """Begin without nodes.

        Args:
            context: What a service works with.
        """
        settings = context.settings
        self._own, self._client, self._health = settings.simulated, context.client, context.health
        self._names, self._timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
        self._start_us = self._own.start_us or time.time_ns() // 1000
        self._doubts: set[str] = set()
        self._mirror = Mirror(self._own.seed, self._start_us, self._doubt)
        self._sending = Sending(context.client, settings, context.health)
        self._loop = asyncio.get_running_loop()
        self._vouched = self._loop.time()  # all facts until then have come

    async def run(self) -> None:
        """Follow until the time is over, or until cancelled."""
        sending = self._sending
        async with asyncio.TaskGroup() as group, sending.pipeline:
            helpers = [group.create_task(work()) for work in (sending.pipeline.run, sending.report, sending.look)]
            try:
                helpers.append(group.create_task(self._hear(await self._fill())))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._own.seconds or None):
                        await self._tell()
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
        """Take what is there; returns the place in the stream behind which everything newer is."""
        last = (await self._described(self._names.telemetry)).last
        self._vouched = self._loop.time()
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
        there = (await self._described(name)).last
        reader = Reader(self._client, name, [f"$KV.{bucket}.>"], newest=True, timeout_seconds=self._timeout)
        # What is refused marks a deletion, or is left to those whose task it is to bury it.
        async with Subscription(reader, subscription.of(kind, by_node=False), subscription.ignore) as facts:
            while facts.position < there:
                batch = await facts.read(timeout_seconds=_SILENCE_SECONDS)
                for each in batch.messages:
                    self._take(each.message)
                if not batch.received and not batch.pending:
                    return  # the last one is gone meanwhile

    async def _described(self, name: str) -> stream.Stream:
        while True:
            try:
                return await stream.describe(self._client, name)
            except errors.NotFound:
                self._health.degrade("follow", _NO_WATCH)
            except errors.REQUEST_FAILED as error:
                log.debug("follow.waiting", extra={"stream": name, "reason": repr(error)})
            await asyncio.sleep(_AWAY_SECONDS)

    async def _hear(self, after: int) -> None:
        subjects = [self._names.part("*", kind) for kind in _KINDS]
        reader = Reader(self._client, self._names.telemetry, subjects, after=after, timeout_seconds=self._timeout)
        decode = subscription.by_kind(_KINDS, by_node=False)
        async with (
            Subscription(reader, decode, subscription.ignore) as facts,  # those who store them bury what is refused
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self._vouch(reader))
            async for batch in facts:
                said: list[Said] = []
                for each in batch.messages:
                    said += self._take(each.message)
                await self._send(said)

    async def _vouch(self, reader: Reader) -> None:
        """Ask again and again whether all facts have come; for ever."""
        while True:
            asked = self._loop.time()
            try:
                if await reader.whole():
                    self._vouched = asked
            except errors.REQUEST_FAILED as error:
                log.debug("follow.unsaid", extra={"reason": repr(error)})
            await asyncio.sleep(_ASK_SECONDS)

    def _take(self, facts: NodeFacts | PodFacts) -> list[Said]:
        if isinstance(facts, PodFacts):
            return list(self._mirror.hear_pod(facts))
        self._mirror.hear_node(facts)
        return []

    def _doubt(self, reason: str) -> None:
        """Say once what many pods may have."""
        if reason not in self._doubts and len(self._doubts) < _MOST_DOUBTS:
            self._doubts.add(reason)
            log.warning("follow.usage_unreadable", extra={"reason": reason})

    async def _tell(self) -> None:
        due = self._loop.time()
        while True:
            self._sending.note_lag(max(0.0, self._loop.time() - due))
            # Whoever was stopped, or cut off, does not know yet what has happened: a node would deny its newest pods.
            unsure = self._loop.time() - self._vouched
            await self._send(self._mirror.tell(time.time_ns() // 1000 - round((unsure + _GRACE_SECONDS) * 1e6)))
            if unsure > _DEAF_SECONDS:
                self._health.degrade("facts", _DEAF)
            else:
                self._health.recover("facts")
            due = max(due, self._loop.time()) + _TICK_SECONDS
            await asyncio.sleep(due - self._loop.time())

    async def _send(self, said: Iterable[Said]) -> None:
        """Publish what is asked for of this."""
        messages = [
            Outgoing(
                self._names.node(each.kind, each.node).encode(), each.payload, f"{each.kind}:{each.identity}".encode()
            )
            for each in said
            if each.kind in self._own.kinds
        ]
        if messages:
            await self._sending.pipeline.send(messages)
