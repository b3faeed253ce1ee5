"""When usage is read: once a second, in a thread of its own, shortly before the last tick of the sampler's grid.

A kernel that takes its time then delays no sample, and the sampler finds the share of pressure that is owed to quotas
in this second when it makes the block of this second.
"""

import logging
import random
import threading
from collections.abc import Callable
from typing import Protocol

from prometheus_client import Histogram

from producers import clock as grid
from producers.source import FAILURES

log = logging.getLogger(__name__)

DURATION = Histogram(
    "spazio_usage_duration_seconds",
    "time to read the usage of all pods once",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)

_OFFSET = 850_000_000  # nanoseconds into a second: before its last tick at 10 Hz
_LOOK_SECONDS = (0.03, 0.07)


class Reader(Protocol):
    """What is read."""

    @property
    def limited(self) -> bool:
        """Whether there is anything to look at in between."""

    def look(self) -> None:
        """Look, at a random moment."""

    def read(self) -> tuple[int, bytes] | None:
        """Return `seq` and payload of a block; None: nothing to tell (yet)."""


class Ticker:
    """A thread that reads usage once a second, and looks at the threads in between while a pod has a quota.

    Args:
        reader: What reads.
        emit: Called in the thread with a block's `seq` and payload; must not block.
        clock: Time since boot, on which the grid lies.
        wait: Waits for some seconds, or until the thread is to stop.
    """

    def __init__(
        self,
        reader: Reader,
        emit: Callable[[int, bytes], None],
        *,
        clock: grid.Clock | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._reader, self._emit = reader, emit
        self._clock = clock or grid.System()
        self._thread = threading.Thread(target=self.run, name="spazio-usage", daemon=True)
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._told = -1
        self._failing = False

    def start(self) -> None:
        """Begin; the first block comes with the second reading."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def run(self) -> None:
        """Read until stopped; a failure is counted, said when it begins and ends, and tried again a second later."""
        while not self._stopping.is_set():
            self.turn()

    def turn(self) -> None:
        """Wait for the next moment, and do what is due then."""
        now = self._clock.boottime()
        due = (now - _OFFSET) // grid.SECOND * grid.SECOND + grid.SECOND + _OFFSET
        wait = (due - now) / grid.SECOND
        pause = random.uniform(*_LOOK_SECONDS)  # noqa: S311 - a phase, no secret
        look = self._reader.limited and pause < wait
        self._wait(pause if look else wait)
        if self._stopping.is_set():
            return
        try:
            if look:
                self._reader.look()
            elif self._clock.boottime() >= due:
                self._read()
        except Exception as error:  # noqa: BLE001 - whatever is wrong in this second, the next one is tried
            FAILURES.labels("usage").inc()
            if not self._failing:
                self._failing = True
                log.warning("usage.failed", extra={"reason": repr(error)})
        else:
            if not look and self._failing:
                self._failing = False
                log.info("usage.recovered")

    def _read(self) -> None:
        with DURATION.time():
            told = self._reader.read()
        if told is not None and told[0] > self._told:
            self._told = told[0]
            self._emit(*told)
