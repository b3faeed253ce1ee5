"""The one-minute load average, from `/proc/loadavg`.

The kernel moves it every five seconds, so it is read once a second.
"""

import math
from pathlib import Path

from producers.source import NO_FACTS, KernelFile, remembered

_EVERY_SECONDS = 0.95


def parse(content: bytes) -> float:
    """Return the first number: threads running or waiting for a CPU or a disk, averaged over a minute.

    Raises:
        ValueError: It is no number of threads.
    """
    load = float(content[: content.index(b" ")])
    if not 0 <= load < math.inf:
        raise ValueError(f"a load of {load} cannot be")
    return load


class Load:
    """Load average."""

    name = "load"
    metrics = ("load1",)
    facts = NO_FACTS

    def __init__(self, proc: Path) -> None:
        self._file = KernelFile(proc / "loadavg")
        self._parse = remembered(parse)
        self._content, self._due = b"", 0.0

    def take(self, now: float) -> bytes:
        """Read the file, or return what it held less than a second ago."""
        if now >= self._due:
            self._content, self._due = self._file.take(now), now + _EVERY_SECONDS
        return self._content

    def measure(self, taken: bytes, now: float) -> tuple[float | None, ...]:  # noqa: ARG002 - levels need no time
        """Pass on the number."""
        return (self._parse(taken),)
