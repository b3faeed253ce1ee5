"""Sends writes to the API server: paced, counted, and with one problem per outage instead of one per object.

Failed writes are not queued: the next comparison of the API server's state with the wanted one finds them again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import Counter, Gauge

from bus.health import Health
from kube import answer
from sinks.kubernetes.writing.pace import Pace

log = logging.getLogger(__name__)

_ABOUT_NONE = (answer.Away, answer.Unknown)  # troubles that do not concern the object
_GIVE_UP = 3
_MOST_IN_FLIGHT = 32  # the pace spreads them, so fewer meet the server at once

WRITES = Counter("spazio_kube_writes_total", "writes to the API server, by what and outcome", ["what", "outcome"])
WAITING = Gauge("spazio_kube_writes_waiting", "objects that need a write", ["what"])
LAG = Gauge("spazio_kube_write_lag_seconds", "time for which the first of them has waited", ["what"])


def _is_gone(trouble: answer.Trouble) -> bool:
    """Tell whether an object is not there any more."""
    return isinstance(trouble, answer.Missing) and not trouble.lasting


def _is_raced(trouble: answer.Trouble) -> bool:
    """Tell whether somebody else has written an object at the same time; it is written again with the next round."""
    return isinstance(trouble, answer.Conflict) and not trouble.managers


def _outcome(trouble: answer.Trouble) -> str:
    """Return the name of an outcome for metrics; what resolves itself is no failure."""
    if _is_gone(trouble) or _is_raced(trouble):
        return "gone" if _is_gone(trouble) else "raced"
    return type(trouble).__name__.lower()


class Write(NamedTuple):
    """One object to write; `send` returns its new state."""

    key: str
    send: Callable[[], Awaitable[Mapping[str, Any]]]


class Writer:
    """Writes of one part of the sink.

    Attributes:
        raced: In the last round, somebody else wrote an object at the same time; the next round should be soon.
    """

    def __init__(self, what: str, health: Health, pace: Pace, within_seconds: float | None = None) -> None:
        """Create a writer.

        Args:
            what: Name of the part, in metrics and on the readiness page.
            health: Receives problems while writes fail.
            pace: Shared by all parts.
            within_seconds: Time in which a round should be written; None: that of the pace.
        """
        self._within_seconds = within_seconds
        self._what, self._part, self._health, self._pace = what, f"kubernetes write {what}", health, pace
        self.raced = False
        self._failing: dict[str, answer.Trouble] = {}
        self._since: dict[str, float] = {}
        self._reported: type[answer.Trouble] = answer.Trouble

    async def write(
        self,
        writes: Iterable[Write],
        *,
        done: Callable[[str, Mapping[str, Any]], None],
        gone: Callable[[str], None],
    ) -> None:
        """Write objects, several at a time; skip the rest when the API server is unavailable or keeps refusing.

        It begins with one at a time and doubles while all succeed, so that few requests meet a server that refuses. One
        that refuses some for its load gets the others, more slowly: it may do so for hours.

        Args:
            writes: Objects to write.
            done: Called with the key and the object after each write.
            gone: Called with the key of an object that does not exist.
        """
        listed, self.raced, row = list(writes), False, 0
        self._note({write.key for write in listed})
        # Objects whose last write failed come last and one by one, so that they do not delay the others.
        refused = {key for key, trouble in self._failing.items() if not isinstance(trouble, _ABOUT_NONE)}
        listed.sort(key=lambda write: write.key in refused)
        trusted, started, window, going = len(listed) - len(refused), 0, 1, True
        while going and started < len(listed):
            together = listed[started : max(started + 1, min(started + window, trusted))]
            started += len(together)
            window = min(2 * window, _MOST_IN_FLIGHT)
            for write, outcome in zip(together, await asyncio.gather(*map(self._send, together)), strict=True):
                if not isinstance(outcome, answer.Trouble):
                    done(write.key, outcome)
                    self._written(write.key)
                    row = 0
                    continue
                window = 1
                passing = self._passing(write.key, outcome, gone)
                # These two concern one object only.
                row += not passing and not isinstance(outcome, answer.Conflict | answer.Invalid)
                if isinstance(outcome, answer.Unknown) or row >= _GIVE_UP:
                    going = False
            self._show()
        self._report()

    def rest(self) -> None:
        """Forget what failed and what waits: another process writes now, or nothing is to be written."""
        self._failing, self._since = {}, {}
        self._show()
        self._report()

    async def _send(self, write: Write) -> Mapping[str, Any] | answer.Trouble:
        """Write one object in its turn."""
        await self._pace.turn()
        try:
            sent = await write.send()
        except answer.Trouble as trouble:
            WRITES.labels(self._what, _outcome(trouble)).inc()
            log.debug("kube.write_failed", extra={"what": self._what, "key": write.key, "reason": trouble.reason})
            if isinstance(trouble, answer.Away):
                self._pace.overloaded(trouble.pause_seconds)
            return trouble
        WRITES.labels(self._what, "written").inc()
        return sent

    def _note(self, wanted: set[str]) -> None:
        """Store since when each object waits, and forget those that need no write any more."""
        now = asyncio.get_running_loop().time()
        self._failing = {key: trouble for key, trouble in self._failing.items() if key in wanted}
        self._since = {key: self._since.get(key, now) for key in wanted}
        # The rate holds for the whole round: by what is left, it would fall as the round goes on.
        self._pace.plan(self._what, len(wanted), self._within_seconds)
        self._show()

    def _written(self, key: str) -> None:
        self._failing.pop(key, None)
        self._since.pop(key, None)

    def _show(self) -> None:
        """Show how many objects wait, and for how long the first of them has."""
        WAITING.labels(self._what).set(len(self._since))
        oldest = min(self._since.values(), default=None)
        LAG.labels(self._what).set(0.0 if oldest is None else asyncio.get_running_loop().time() - oldest)

    def _passing(self, key: str, trouble: answer.Trouble, gone: Callable[[str], None]) -> bool:
        """Tell whether the next round resolves a failure by itself."""
        if _is_gone(trouble):
            gone(key)
        elif _is_raced(trouble):
            self.raced = True
        else:
            self._failing[key] = trouble
            return False
        self._written(key)
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
