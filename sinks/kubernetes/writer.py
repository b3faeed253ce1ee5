"""Writes to the API server: rate-limited, counted, and with one problem per outage instead of one per object.

Failed writes are not queued: the next comparison of the API server's state with the wanted one finds them again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Counter

from bus.health import Health
from kube import answer

log = logging.getLogger(__name__)

_ABOUT_NONE = (answer.Away, answer.Unknown)  # troubles that do not concern the object
_GIVE_UP = 3

WRITES = Counter("spazio_kube_writes_total", "writes to the API server, by what and outcome", ["what", "outcome"])


class Pace:
    """A rate limit, evenly spaced and shared by all callers."""

    def __init__(self, per_second: float) -> None:
        self._interval, self._next = 1 / per_second, 0.0

    async def turn(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        self._next = max(self._next + self._interval, loop.time())
        await asyncio.sleep(self._next - loop.time())


class Write(NamedTuple):
    """One object to write; `send` returns its new state."""

    key: str
    send: Callable[[], Awaitable[Mapping[str, Any]]]


class Writer:
    """Writes of one part of the sink.

    Attributes:
        raced: In the last round, somebody else wrote an object at the same time; the next round should be soon.
    """

    def __init__(self, what: str, health: Health, pace: Pace) -> None:
        """Create a writer.

        Args:
            what: Name of the part, in metrics and on the readiness page.
            health: Receives problems while writes fail.
            pace: Shared by all parts.
        """
        self._what, self._part, self._health, self._pace = what, f"kubernetes write {what}", health, pace
        self.raced = False
        self._failing: dict[str, answer.Trouble] = {}
        self._reported: type[answer.Trouble] = answer.Trouble

    async def write(
        self,
        writes: Iterable[Write],
        *,
        done: Callable[[str, Mapping[str, Any]], None],
        gone: Callable[[str], None],
    ) -> None:
        """Write objects one after the other; skip the rest when the API server is unavailable or keeps refusing.

        Args:
            writes: Objects to write.
            done: Called with the key and the object after each write.
            gone: Called with the key of an object that does not exist.
        """
        listed, self.raced = list(writes), False
        wanted, row = {write.key for write in listed}, 0
        self._failing = {key: trouble for key, trouble in self._failing.items() if key in wanted}
        # Objects whose last write failed come last, so that they do not delay the others.
        listed.sort(
            key=lambda write: write.key in self._failing and not isinstance(self._failing[write.key], _ABOUT_NONE)
        )
        for write in listed:
            await self._pace.turn()
            try:
                done(write.key, await write.send())
            except answer.Trouble as trouble:
                WRITES.labels(self._what, type(trouble).__name__.lower()).inc()
                log.debug("kube.write_failed", extra={"what": self._what, "key": write.key, "reason": trouble.reason})
                passing = self._passing(write.key, trouble, gone)
                # These two concern one object only.
                row += not passing and not isinstance(trouble, answer.Conflict | answer.Invalid)
                if isinstance(trouble, _ABOUT_NONE) or row >= _GIVE_UP:
                    break
            else:
                WRITES.labels(self._what, "written").inc()
                self._failing.pop(write.key, None)
                row = 0
        self._report()

    def _passing(self, key: str, trouble: answer.Trouble, gone: Callable[[str], None]) -> bool:
        """Tell whether the next round resolves a failure by itself."""
        if isinstance(trouble, answer.Missing) and not trouble.lasting:
            gone(key)
        elif isinstance(trouble, answer.Conflict) and not trouble.managers:
            self.raced = True
        else:
            self._failing[key] = trouble
            return False
        self._failing.pop(key, None)
        return True

    def _report(self) -> None:
        """Report the problem, with an unchanged text while the kind of trouble is the same."""
        if not self._failing:
            self._health.recover(self._part)
            return
        kinds = {type(trouble) for trouble in self._failing.values()}
        if self._part in self._health.problems and self._reported in kinds:
            return
        trouble = next(iter(self._failing.values()))
        self._reported = type(trouble)
        self._health.degrade(self._part, trouble.reason)
