"""A source that waits until its runtime is available.

A runtime may be installed, started or permitted at any time, and a restart removes its socket for a while. A check
costs some microseconds, so it runs as often as sources list. A missing runtime is logged once and is not a failure.
"""

import asyncio
import logging
from collections.abc import Callable

from producers.containers.sources import turn
from producers.containers.sources.source import Sink, Source

log = logging.getLogger(__name__)


class Patient:
    """Runs a source while it is usable.

    Args:
        source: The source.
        shortage: Returns why the source is not usable now; empty if it is.
        look_seconds: Time between two checks.
        level: Log level of a shortage.
    """

    def __init__(self, source: Source, shortage: Callable[[], str], *, look_seconds: float, level: int) -> None:
        self.name = source.name
        self._source, self._shortage, self._look_seconds, self._level = source, shortage, look_seconds, level
        self._logged = ""

    async def run(self, sink: Sink) -> None:
        """Wait until the source is usable, then run it; raises what it raises."""
        while shortage := self._shortage():
            if shortage != self._logged:
                self._logged = shortage
                log.log(self._level, "containers.waiting", extra={"source": self.name, "reason": shortage})
            await asyncio.sleep(turn.pause(asyncio.get_running_loop().time(), self._look_seconds))
        if self._logged:
            self._logged = ""
            log.info("containers.found", extra={"source": self.name})
        await self._source.run(sink)
