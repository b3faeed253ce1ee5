"""A source that waits until what it follows is there.

A runtime may be installed, started or permitted at any time, and one that is restarted takes its socket away for a
while. Looking costs some microseconds, so it is done as often as sources list; what is missing is said once, and
is no failure.
"""

import asyncio
import logging
from collections.abc import Callable

from producers.containers.sources.source import Sink, Source

log = logging.getLogger(__name__)


class Patient:
    """Runs a source while it can be used.

    Args:
        source: The source.
        shortage: Says why the source cannot be used now, empty if it can.
        look_seconds: Time between two looks.
        level: How loud a shortage is said.
    """

    def __init__(self, source: Source, shortage: Callable[[], str], *, look_seconds: float, level: int) -> None:
        self.name = source.name
        self._source, self._shortage, self._look_seconds, self._level = source, shortage, look_seconds, level
        self._said = ""

    async def run(self, sink: Sink) -> None:
        """Wait for what the source follows, then run the source; raises what that raises."""
        while shortage := self._shortage():
            if shortage != self._said:
                self._said = shortage
                log.log(self._level, "containers.waiting", extra={"source": self.name, "reason": shortage})
            await asyncio.sleep(self._look_seconds)
        if self._said:
            self._said = ""
            log.info("containers.found", extra={"source": self.name})
        await self._source.run(sink)
