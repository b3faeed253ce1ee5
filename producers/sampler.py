"""Take a row of samples at each tick of the grid, and emit the rows of each second as one block.

The sampler has its own thread, because ten ticks a second must not wait for the network. It sleeps until the next
time of the grid, never for a duration, so a late tick does not delay later ones. The sampler does not repeat a missed
tick: its row stays null and a counter counts it, since rates of samples in quick succession would have no meaning. A
suspended machine skips whole blocks.

A row belongs to the tick in whose interval it was read, at most one interval after its nominal time. At a tick the
sampler only reads files; it computes all rows of a second together after the last tick. It also measures sources
without a file then, once, for all rows of the second that were taken.
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence

from prometheus_client import Counter, Histogram

from producers import clock as grid
from producers.file import Content, Files
from producers.source import Guarded, Source
from schemas.messages.base import VERSION

log = logging.getLogger(__name__)

LATENESS = Histogram(
    "spazio_sample_lateness_seconds",
    "by how much a tick was later than its moment",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1),
)
MISSED = Counter("spazio_samples_missed_total", "ticks that were slept through while the machine was awake")
BLOCK_FAILURES = Counter("spazio_block_failures_total", "blocks that could not be built or handed on")

_DECIMALS = 4
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

# A tick, its time in nanoseconds of CLOCK_BOOTTIME and of CLOCK_MONOTONIC, and the contents of the files.
Taken = tuple[int, int, int, Sequence[Content]]


class Sampler:
    """Samples sources on the grid.

    Args:
        sources: Sources to measure; their metrics in this order are the columns of a block.
        node: The node's name.
        boot: Identifier of this boot of its kernel.
        interval_seconds: Time from one tick to the next; divides a second.
        emit: Called in the sampler's thread with a block's `seq` and its payload; must not block.
        clock: Clocks and sleep.

    Raises:
        ValueError: Two sources give the same metric.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        node: str,
        boot: str,
        interval_seconds: float,
        emit: Callable[[int, bytes], None],
        clock: grid.Clock | None = None,
    ) -> None:
        self._sources = [Guarded(source) for source in sources]
        self._files = Files([source.path for source in sources if source.path is not None])
        self._metrics = [metric for source in sources for metric in source.metrics]
        if len(set(self._metrics)) != len(self._metrics):
            raise ValueError(f"sources: two sources give the same metric in {', '.join(self._metrics)}")
        self._samples = round(1 / interval_seconds)
        self._identity = {"v": VERSION, "node": node, "boot": boot}
        self._emit = emit
        self._clock = clock or grid.System()
        self._thread = threading.Thread(target=self.run, name="spazio-sampler", daemon=True)
        self._stopping = False
        self._failing = False
        self._first = 0
        self._second: int | None = None
        self._at_us = 0
        self._taken: list[Taken] = []  # in this second
        self._before: tuple[int, int] | None = None  # last tick, and total suspended time then

    def start(self) -> None:
        """Start sampling in a thread; the first block is that of the next whole second."""
        self._thread.start()

    def stop(self) -> None:
        """Stop within one tick, and wait for it; drops the incomplete block."""
        self._stopping = True
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def run(self) -> None:
        """Sample until stopped. Samples before the first whole second only initialise the counters."""
        tick = self._take()
        self._first = tick // self._samples + 1
        while self._wait(tick + 1):
            tick = self._take()
            if (tick + 1) % self._samples == 0:
                self._finish()

    def _wait(self, due: int) -> bool:
        """Sleep at least until the time of a tick, so that no clock needs to be read again."""
        early = grid.deadline(due, self._samples) - self._clock.boottime()
        if early > 0 and not self._stopping:
            self._clock.sleep(early / grid.SECOND)
        return not self._stopping

    def _take(self) -> int:
        """Read all files; return the newest tick whose time had come."""
        now, awake = self._clock.boottime(), self._clock.monotonic()
        contents = self._files.read()
        tick = grid.latest(now, self._samples)
        second = tick // self._samples
        if second != self._second:
            self._finish()
            self._second = second
            self._at_us = grid.wall_us(second, now, self._clock.realtime())
        self._taken.append((tick, now, awake, contents))
        return tick

    def _finish(self) -> None:
        """Compute and emit the block of the current second, if a second was started."""
        taken, self._taken = self._taken, []
        second, self._second = self._second, None
        if second is None:
            return
        self._files.retry()
        self._observe(taken)
        values = self._measure(taken)
        if second >= self._first:
            self._hand_on(second, values)

    def _observe(self, taken: list[Taken]) -> None:
        """Count late and missed ticks, without the time that the machine was suspended."""
        for tick, now, awake, _ in taken:
            if self._before is not None:
                last, suspended = self._before
                unsuspended = now - max(0, now - awake - suspended)
                LATENESS.observe(grid.lateness(last + 1, unsuspended, self._samples))
                if missed := grid.missed(last + 1, unsuspended, self._samples):
                    MISSED.inc(missed)
            self._before = tick, now - awake

    def _measure(self, taken: list[Taken]) -> list[float | None]:
        """Return the values of a block, row by row; None for ticks that were not taken."""
        columns = len(self._metrics)
        values: list[float | None] = [None] * (self._samples * columns)
        moments = [awake / grid.SECOND for _, _, awake, _ in taken]
        files = zip(*[contents for _, _, _, contents in taken], strict=True)
        column = 0
        for source in self._sources:
            if source.path is None:
                rows = [source.measure(b"", moments[-1])] * len(taken)
            else:
                rows = list(map(source.measure, next(files), moments))
            for (tick, *_), row in zip(taken, rows, strict=True):
                start = tick % self._samples * columns + column
                values[start : start + len(row)] = row
            column += len(source.metrics)
        return values

    def _hand_on(self, second: int, values: list[float | None]) -> None:
        try:
            self._emit(second, self._payload(second, values))
        except Exception as error:  # noqa: BLE001 - only this block is lost
            BLOCK_FAILURES.inc()
            if not self._failing:
                self._failing = True
                log.warning("block.failed", extra={"seq": second, "reason": repr(error)})
            return
        if self._failing:
            self._failing = False
            log.info("block.recovered", extra={"seq": second})

    def _payload(self, second: int, values: list[float | None]) -> bytes:
        """Return the JSON of a `SampleBlock` from a plain dict: own measurements need no validation."""
        facts: dict[str, int] = {}
        for source in self._sources:
            facts |= source.facts
        if missing := {"cpus", "memory_bytes"} - facts.keys():
            raise ValueError(f"no source has measured {', '.join(sorted(missing))} yet")
        block = {
            **self._identity,
            "seq": second,
            "at_us": self._at_us,
            "step_us": round(1_000_000 / self._samples),
            **facts,
            "metrics": self._metrics,
            "values": [None if value is None else round(value, _DECIMALS) for value in values],
        }
        return _encode(block).encode()
