"""How long threads waited, from `/proc/pressure` (pressure stall information, PSI).

`total=` counts microseconds in which some, or all, threads waited for the resource; it moves at every read, unlike
the averages beside it. The ratio is d total / (1e6 dt). For the CPU of a whole machine only `some` means anything:
the kernel reports `full` as 0 there. A kernel without PSI (not built in, or `psi=0`) has no such file: its metrics
are missing, and that is said once.
"""

import errno
import logging
from pathlib import Path
from typing import Literal

from producers.source import NO_FACTS, KernelFile, clip, rate, remembered

log = logging.getLogger(__name__)

_METRICS = {
    "cpu": ("cpu_pressure",),
    "memory": ("memory_pressure", "memory_stall"),
    "io": ("io_pressure", "io_stall"),
}
_NO_PSI = (errno.ENOENT, errno.EOPNOTSUPP)


def parse(content: bytes) -> tuple[int, ...]:
    """Return the total of each line, in microseconds: some, then full (absent for the CPU before Linux 5.13).

    Raises:
        ValueError: A total is missing or no number.
    """
    totals = tuple(int(line[line.index(b"total=") + 6 :]) for line in content.splitlines())
    if not content.startswith(b"some "):
        raise ValueError(f"pressure begins with {content[:16]!r}, not with some")
    return totals


class Pressure:
    """Share of time that threads waited for one resource."""

    facts = NO_FACTS

    def __init__(self, proc: Path, resource: Literal["cpu", "memory", "io"]) -> None:
        self.name = f"pressure.{resource}"
        self.metrics: tuple[str, ...] = _METRICS[resource]
        self._file = KernelFile(proc / "pressure" / resource)
        self._parse = remembered(parse)
        self._nothing = (None,) * len(self.metrics)
        self._before: tuple[int, ...] | None = None
        self._at = 0.0
        self._absent = False

    def take(self, now: float) -> bytes:
        """Read the file; nothing where the kernel has none."""
        try:
            content = self._file.take(now)
        except OSError as error:
            if error.errno not in _NO_PSI:
                raise
            if not self._absent:
                log.warning("source.absent", extra={"source": self.name, "reason": "the kernel has PSI switched off"})
            self._absent = True
            return b""
        self._absent = False
        return content

    def measure(self, taken: bytes, now: float) -> tuple[float | None, ...]:
        """Compare with the reading before; the first knows nothing."""
        totals = self._parse(taken) if taken else None
        before, elapsed = self._before, now - self._at
        self._before, self._at = totals, now
        if before is None or totals is None:
            return self._nothing
        return tuple(_ratio(before, totals, index, elapsed) for index in range(len(self.metrics)))


def _ratio(before: tuple[int, ...], after: tuple[int, ...], index: int, elapsed: float) -> float | None:
    if index >= min(len(before), len(after)):
        return None
    growth = rate(before[index], after[index], elapsed)
    return None if growth is None else clip(growth / 1e6)
