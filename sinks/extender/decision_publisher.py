"""Publishes decisions on the bus in batches, after the answers; one by one, they would cost as much as the answers.

If the server is unavailable, the oldest decisions are dropped; a kill loses those of the last 50 ms. Neither delays an
answer.
"""

import asyncio
import contextlib
from collections import deque

from prometheus_client import Counter

from bus.client import Client
from bus.health import UNSTORED, Health
from bus.publishing.bounds import Bounds
from bus.publishing.pipeline import Outgoing, Pipeline
from schemas import codec
from schemas.messages.placement import Decision
from schemas.subject import Names, token

_MOST_QUEUED = 10_000
_IN_FLIGHT = 500
_PAUSE_SECONDS = 0.05
_PATIENCE_SECONDS = 5.0
_LAST_SECONDS = 1.0

DROPPED = Counter(
    "spazio_extender_decisions_dropped_total", "decisions not published: the server was away for long, or too large"
)


class DecisionPublisher:
    """A bounded queue of decisions that drops the oldest when it is full."""

    def __init__(self, client: Client, names: Names, health: Health, *, timeout_seconds: float) -> None:
        """Create an empty queue."""
        self._client, self._names, self._health, self._timeout = client, names, health, timeout_seconds
        self._bounds = Bounds(client, names, "extender", timeout_seconds=timeout_seconds)
        self._queued: deque[Decision] = deque(maxlen=_MOST_QUEUED)
        self._wake = asyncio.Event()

    def publish(self, decision: Decision) -> None:
        """Queue a decision."""
        if len(self._queued) == _MOST_QUEUED:
            DROPPED.inc()
        self._queued.append(decision)
        self._wake.set()

    async def run(self) -> None:
        """Publish queued decisions until cancelled; then publish the rest, for at most a second."""
        loop = asyncio.get_running_loop()
        pipeline = Pipeline(self._client, limit=_IN_FLIGHT, timeout_seconds=self._timeout, health=self._health)
        async with asyncio.TaskGroup() as group, pipeline:
            group.create_task(pipeline.run())
            try:
                while True:
                    await self._wake.wait()
                    await asyncio.sleep(_PAUSE_SECONDS)
                    self._wake.clear()
                    async with self._health.within("publishing decisions", _PATIENCE_SECONDS, UNSTORED):
                        await self._send(pipeline, None)
            finally:
                with contextlib.suppress(TimeoutError):
                    await self._send(pipeline, loop.time() + _LAST_SECONDS)
                    await pipeline.drain(_LAST_SECONDS)

    async def _send(self, pipeline: Pipeline, until: float | None) -> None:
        while self._queued:
            decisions = [self._queued.popleft() for _ in range(min(len(self._queued), _IN_FLIGHT))]
            outgoing = [self._outgoing(decision) for decision in decisions]
            sendable = await self._bounds.fitting(outgoing, lambda each: (each.subject.decode(), each.payload))
            DROPPED.inc(len(outgoing) - len(sendable))
            await pipeline.send(sendable, until=until)

    def _outgoing(self, decision: Decision) -> Outgoing:
        subject = self._names.of("decision", token(decision.namespace), token(decision.name))
        identity = f"decision:{decision.pod}:{decision.at_us}"
        return Outgoing(subject.encode(), codec.encode(decision), identity.encode())
