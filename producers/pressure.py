"""Share of time that threads waited, from `/proc/pressure` (pressure stall information, PSI).

`total=` counts microseconds in which some, or all, threads waited for the resource; unlike the averages in the same
line it is current at every read. The ratio is d total / (1e6 dt). For the CPU of a whole machine only `some` has a
meaning: the kernel reports `full` as 0 there. A kernel without PSI (not built in, or `psi=0`) has no such file: its
metrics are missing, and the agent logs that once.
"""

from pathlib import Path
from typing import Literal

from producers.source import NO_FACTS, Values, cached, clip, rate

_METRICS = {
    "cpu": ("cpu_pressure",),
    "memory": ("memory_pressure", "memory_stall"),
    "io": ("io_pressure", "io_stall"),
}


def parse(content: bytes) -> tuple[int, ...]:
    """Return the total of each line, in microseconds: some, then full (absent for the CPU before Linux 5.13).

    Raises:
        ValueError: A total is missing or not a number.
    """
    totals = tuple(int(line[line.index(b"total=") + 6 :]) for line in content.splitlines())
    if not content.startswith(b"some "):
        raise ValueError(f"pressure begins with {content[:16]!r}, not with some")
    return totals


class Pressure:
    """Share of time that threads waited for one resource."""

    optional = True
    facts = NO_FACTS

    def __init__(self, proc: Path, resource: Literal["cpu", "memory", "io"]) -> None:
        self.name = f"pressure.{resource}"
        self.metrics: tuple[str, ...] = _METRICS[resource]
        self.path = proc / "pressure" / resource
        self._parse = cached(parse)
        self._nothing = (None,) * len(self.metrics)
        self._before: tuple[int, ...] | None = None
        self._at = 0.0

    def measure(self, content: bytes, now: float) -> Values:
        """Compare with the previous reading; None for the first one."""
        totals = self._parse(content)
        before, elapsed = self._before, now - self._at
        self._before, self._at = totals, now
        if before is None:
            return self._nothing
        return tuple(_ratio(before, totals, index, elapsed) for index in range(len(self.metrics)))


def _ratio(before: tuple[int, ...], after: tuple[int, ...], index: int, elapsed: float) -> float | None:
    if index >= min(len(before), len(after)):
        return None
    growth = rate(before[index], after[index], elapsed)
    return None if growth is None else clip(growth / 1e6)
