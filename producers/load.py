"""The one-minute load average, from `/proc/loadavg`.

The kernel updates it every five seconds, so it is read once a second.
"""

import math
from pathlib import Path

from producers.file import KernelFile
from producers.source import NO_FACTS, Values, whole


def parse(content: bytes) -> float:
    """Return the first number: threads running or waiting for a CPU or a disk, averaged over a minute.

    Raises:
        ValueError: It is not a number of threads.
    """
    load = float(content[: content.index(b" ")])
    if not 0 <= load < math.inf:
        raise ValueError(f"a load of {load} is impossible")
    return load


class Load:
    """Load average."""

    name = "load"
    metrics = ("load1",)
    path = None
    optional = False
    facts = NO_FACTS

    def __init__(self, proc: Path) -> None:
        self._file = KernelFile(proc / "loadavg")

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - a level, and a file of its own
        """Read the number."""
        return (parse(whole(self._file.read())),)
