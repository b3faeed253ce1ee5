"""Sends the messages of a load generator, reports its rates, and degrades health when the server refuses messages."""

import asyncio
import logging
import resource
from typing import Any

from bus.client import Client
from bus.health import UNSTORED, Health
from bus.publishing.pipeline import NO_STREAM, Pipeline
from schemas.settings import Settings

log = logging.getLogger(__name__)

_REPORT_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_BEHIND_SECONDS = 0.5

_NO_STREAM = "no stream stores the messages: start `spazio process` or `spazio up` on this server, which create it"


class Sending:
    """A pipeline of messages, and its statistics.

    Attributes:
        pipeline: Publishes the messages.
        began: Time of the loop from which rates are counted.
        ended: Time of the loop until which rates are counted; not before `began`.
    """

    def __init__(self, client: Client, settings: Settings, health: Health) -> None:
        """Start empty.

        Args:
            client: Connection.
            settings: Sizes and times.
            health: Degraded while messages cannot be stored or are late.
        """
        self.pipeline = Pipeline(
            client, limit=settings.simulated.in_flight, timeout_seconds=settings.nats.request_timeout_seconds
        )
        self._health, self._loop = health, asyncio.get_running_loop()
        self.began = self.ended = self._loop.time()
        self._cpu = _cpu_seconds()
        self._lag = self._lag_max = 0.0
        self._behind = False

    def begin(self, at: float) -> None:
        """Start counting at a time of the loop."""
        self.began, self._cpu = at, _cpu_seconds()

    def end(self) -> None:
        """Stop counting."""
        self.ended = self._loop.time()

    def reached(self) -> dict[str, Any]:
        """Return the statistics so far."""
        pipeline, seconds = self.pipeline, max(self.ended, self.began + 1e-3) - self.began
        return {
            "seconds": round(seconds, 3),
            "sent": pipeline.sent,
            "stored": pipeline.stored,
            "duplicates": pipeline.duplicates,
            "resent": pipeline.resent,
            "unanswered": pipeline.in_flight,
            "refused": dict(pipeline.refused),
            "rate": round(pipeline.stored / seconds, 1),
            "lag_seconds": round(self._lag, 4),
            "lag_seconds_max": round(self._lag_max, 4),
            "cpu_share": round((_cpu_seconds() - self._cpu) / seconds, 4),
        }

    def note_lag(self, lag: float) -> None:
        """Record how many seconds late a message is sent."""
        self._lag, self._lag_max = lag, max(self._lag_max, lag)
        if lag > _BEHIND_SECONDS and not self._behind:
            self._behind = True
            reason = "the load is behind its schedule; simulate fewer nodes, or prepare seconds"
            self._health.degrade("load", reason, level=logging.WARNING)
        elif lag < _BEHIND_SECONDS / 2 and self._behind:
            self._behind = False
            self._health.recover("load")

    async def watch_health(self) -> None:
        """Degrade health from the first refused message until the server stores messages and refuses none; endless."""
        refused, stored = 0, 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            reasons = self.pipeline.refused
            if (now := reasons.total()) > refused:
                reason = _NO_STREAM if reasons[NO_STREAM] == now else UNSTORED
                self._health.degrade("stream", reason)
            elif self.pipeline.stored > stored:
                self._health.recover("stream")
            refused, stored = now, self.pipeline.stored

    async def report(self) -> None:
        """Log rates regularly, until cancelled."""
        stored, at = 0, self._loop.time()
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            pipeline, now = self.pipeline, self._loop.time()
            rates = {
                "rate": round((pipeline.stored - stored) / (now - at), 1),
                "lag_seconds": round(self._lag, 3),
                "in_flight": pipeline.in_flight,
                "resent": pipeline.resent,
                "refused": sum(pipeline.refused.values()),
            }
            log.info("load.measured", extra=rates)
            stored, at = pipeline.stored, now


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
