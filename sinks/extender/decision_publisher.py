"""Saying decisions on the bus, behind the answers and some at a time; one by one they would cost as much as answers.

A server that is away costs the oldest of them, a kill the last twentieth of a second, and neither costs an answer.
"""

import asyncio
import contextlib
from collections import deque

from prometheus_client import Counter

from bus.client import Client
from bus.health import UNSTORED, Health
from bus.publishing.pipeline import Outgoing, Pipeline
from schemas import codec
from schemas.messages.placement import Decision
from schemas.subject import Names, token

_MOST_WAITING = 10_000
_IN_FLIGHT = 500
_PAUSE_SECONDS = 0.05
_PATIENCE_SECONDS = 5.0
_LAST_SECONDS = 1.0
_ROOM_FOR_HEADERS = 4096
_LONGEST_SUBJECT = 3000  # the server ends a connection that says a longer line than 4,096 bytes

DROPPED = Counter(
    "spazio_extender_decisions_dropped_total", "decisions never said: the server away for long, or larger than it takes"
)


class Telling:
    """A bounded queue of decisions; the oldest makes room for the newest."""

    def __init__(self, client: Client, names: Names, health: Health, *, timeout_seconds: float) -> None:
        """Make an empty queue."""
        self._client, self._names, self._health, self._timeout = client, names, health, timeout_seconds
        self._waiting: deque[Decision] = deque(maxlen=_MOST_WAITING)
        self._wake = asyncio.Event()

    def say(self, decision: Decision) -> None:
        """Queue a decision."""
        if len(self._waiting) == _MOST_WAITING:
            DROPPED.inc()
        self._waiting.append(decision)
        self._wake.set()

    async def run(self) -> None:
        """Say what is queued until cancelled; then the rest, if the server takes it soon."""
        loop = asyncio.get_running_loop()
        pipeline = Pipeline(self._client, limit=_IN_FLIGHT, timeout_seconds=self._timeout)
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
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _IN_FLIGHT))]
            outgoing = [self._outgoing(decision) for decision in some]
            largest = self._client.max_payload - _ROOM_FOR_HEADERS
            sendable = [
                each for each in outgoing if len(each.payload) < largest and len(each.subject) <= _LONGEST_SUBJECT
            ]
            DROPPED.inc(len(outgoing) - len(sendable))
            await pipeline.send(sendable, until=until)

    def _outgoing(self, decision: Decision) -> Outgoing:
        subject = self._names.of("decision", token(decision.namespace), token(decision.name))
        identity = f"decision:{decision.pod}:{decision.at_us}"
        return Outgoing(subject.encode(), codec.encode(decision), identity.encode("ascii", "backslashreplace"))
