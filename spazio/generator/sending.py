"""What every load generator does around its messages: sends them, says what was reached, and what stands in its way."""

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

_NO_STREAM = "no stream takes the messages: start `spazio process` or `spazio up` on this server, which make it"


class Sending:
    """A pipeline of messages, and an account of it.

    Attributes:
        pipeline: The way onto the bus.
        began: Time of the loop from which rates are counted.
        ended: Time of the loop until which; not before it began.
    """

    def __init__(self, client: Client, settings: Settings, health: Health) -> None:
        """Make an empty one.

        Args:
            client: Connection.
            settings: Sizes and times.
            health: Told when messages cannot be stored, and when they are late.
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
        """Count from a time of the loop on."""
        self.began, self._cpu = at, _cpu_seconds()

    def end(self) -> None:
        """Count no further."""
        self.ended = self._loop.time()

    def reached(self) -> dict[str, Any]:
        """Return what was reached so far."""
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
        """Take how many seconds behind its time a message is sent."""
        self._lag, self._lag_max = lag, max(self._lag_max, lag)
        if lag > _BEHIND_SECONDS and not self._behind:
            self._behind = True
            self._health.degrade("load", "the load is behind its schedule; simulate fewer nodes, or prepare seconds")
        elif lag < _BEHIND_SECONDS / 2 and self._behind:
            self._behind = False
            self._health.recover("load")

    async def look(self) -> None:
        """Say that the server refuses messages, from the first one until it stores some and refuses none; for ever."""
        refused, stored = 0, 0
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            found = self.pipeline.refused
            if (now := found.total()) > refused:
                reason = _NO_STREAM if found[NO_STREAM] == now else UNSTORED
                self._health.degrade("stream", reason)
            elif self.pipeline.stored > stored:
                self._health.recover("stream")
            refused, stored = now, self.pipeline.stored

    async def report(self) -> None:
        """Log now and then what is reached; for ever."""
        stored, at = 0, self._loop.time()
        while True:
            await asyncio.sleep(_REPORT_SECONDS)
            pipeline, now = self.pipeline, self._loop.time()
            said = {
                "rate": round((pipeline.stored - stored) / (now - at), 1),
                "lag_seconds": round(self._lag, 3),
                "in_flight": pipeline.in_flight,
                "resent": pipeline.resent,
                "refused": sum(pipeline.refused.values()),
            }
            log.info("load.rate", extra=said)
            stored, at = pipeline.stored, now


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
