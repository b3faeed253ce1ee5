"""Read usage once a second, in its own thread, shortly before the last tick of the sampler's grid.

So a slow kernel delays no sample, and the sampler has the share of pressure that quotas cause in a second when it
makes the block of that second.
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

OFFSET = 850_000_000  # nanoseconds into a second: before its last tick at 10 Hz
_SAMPLE_SECONDS = (0.03, 0.07)


class Reader(Protocol):
    """A reader of usage."""

    @property
    def is_sampling(self) -> bool:
        """Whether to sample in between."""

    def sample(self) -> None:
        """Sample what is known of an instant only, at a random time."""

    def read(self, second: int) -> tuple[int, bytes] | None:
        """Return `seq` and payload of the block of a second since boot; None: there is none (yet)."""


class Ticker:
    """A thread that reads usage once a second, and samples threads in between while there is a reason to.

    Args:
        reader: Reader of usage.
        emit: Called in the thread with a block's `seq` and payload; must not block.
        clock: Time since boot, for the grid.
        wait: Waits for some seconds, or until the thread must stop.
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
        self._failing = False

    def start(self) -> None:
        """Start; the second reading gives the first block."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread to end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def run(self) -> None:
        """Read until stopped; a failure is counted, logged at start and end, and retried a second later."""
        while not self._stopping.is_set():
            self.turn()

    def turn(self) -> None:
        """Wait for the next due time, then read or sample.

        A late reading belongs to the second in which it was due, and the next one comes in time.
        """
        now = self._clock.boottime()
        due = (now - OFFSET) // grid.SECOND * grid.SECOND + grid.SECOND + OFFSET
        wait = (due - now) / grid.SECOND
        pause = random.uniform(*_SAMPLE_SECONDS)  # noqa: S311 - a phase, no secret
        is_sample = self._reader.is_sampling and pause < wait
        self._wait(pause if is_sample else wait)
        if self._stopping.is_set():
            return
        now = self._clock.boottime()
        try:
            if now >= due:
                self._read((now - OFFSET) // grid.SECOND)
            elif is_sample:
                self._reader.sample()
        except Exception as error:  # noqa: BLE001 - the next second is tried in any case
            FAILURES.labels("usage").inc()
            if not self._failing:
                self._failing = True
                log.warning("usage.failed", extra={"reason": repr(error)})
        else:
            if now >= due and self._failing:
                self._failing = False
                log.info("usage.recovered")

    def _read(self, second: int) -> None:
        with DURATION.time():
            block = self._reader.read(second)
        if block is not None:
            self._emit(*block)
