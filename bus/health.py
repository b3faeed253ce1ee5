"""Current problems of a service, for its readiness page and for people."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import Gauge

log = logging.getLogger(__name__)

UNSTORED = (
    "the NATS server has not stored anything for seconds: it is busy, or stopped, or its disk is slow or full, or "
    "its streams are gone; see its log; waiting messages are kept while the buffer has room"
)

DEGRADED = Gauge("spazio_degraded", "1 while a part of the service cannot do its work", ["part"])


class Health:
    """Problems by part; a part without a problem is healthy.

    Attributes:
        problems: Reason by part.
        dead: Parts without which the service does nothing.
    """

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.dead: set[str] = set()

    def degrade(self, part: str, reason: str, *, dead: bool = False, level: int = logging.ERROR) -> None:
        """Record a problem; it is logged once while it stays the same.

        Args:
            part: The part.
            reason: What is wrong, and what would help.
            dead: The service does nothing without the part.
            level: Level of the log event; a warning where the service does what it is meant to do in such a case.
        """
        if self.problems.get(part) != reason:
            log.log(level, "service.degraded", extra={"part": part, "reason": reason})
        self.problems[part] = reason
        if dead:
            self.dead.add(part)
        DEGRADED.labels(part).set(1)

    def recover(self, *parts: str) -> None:
        """Record that parts work again."""
        for part in parts:
            self.dead.discard(part)
            if self.problems.pop(part, None) is not None:
                log.info("service.recovered", extra={"part": part})
                DEGRADED.labels(part).set(0)

    @asynccontextmanager
    async def within(self, part: str, seconds: float, reason: str | Callable[[], str]) -> AsyncIterator[None]:
        """Degrade a part if the block takes longer than `seconds`; recover it when the block ends.

        Args:
            part: The part.
            seconds: How long the block may take.
            reason: Why it takes longer, or what returns that by then.
        """

        def degrade() -> None:
            self.degrade(part, reason if isinstance(reason, str) else reason())

        timer = asyncio.get_running_loop().call_later(seconds, degrade)
        try:
            yield
            self.recover(part)
        finally:
            timer.cancel()
