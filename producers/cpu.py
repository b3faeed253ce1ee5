"""CPU utilisation, from `/proc/stat`.

The first line adds up all CPUs, in ticks of 10 ms: user, nice, system, idle, iowait, irq, softirq, steal, guest,
guest_nice (proc_stat(5)). user and nice include guest time, so only the first eight are added. At ten reads a
second a CPU's counters grow by ten ticks a read, so utilisation has steps of 1 / (10 CPUs).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from producers.source import NO_FACTS, Values, cached


class Reading(NamedTuple):
    """One reading of `/proc/stat`; times in ticks, over all CPUs since boot."""

    busy: int
    idle: int
    iowait: int
    cpus: int
    highest: bytes
    running: int


def parse(content: bytes) -> Reading:
    """Read the CPU lines and `procs_running`.

    Raises:
        ValueError: A line is missing, or a field is not a number that a kernel writes.
    """
    total = content[: content.index(b"\n")].split(None, 9)
    if total[0] != b"cpu":
        raise ValueError(f"/proc/stat begins with {total[0]!r}, not with cpu")
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, total[1:9])
    end = content.index(b"\nintr")
    last = content.rindex(b"\ncpu", 0, end)
    start = content.index(b"\nprocs_running ") + len(b"\nprocs_running ")
    running = int(content[start : content.index(b"\n", start)])
    if running >= 1 << 63:
        raise ValueError("procs_running has more than 63 bits")
    return Reading(
        busy=user + nice + system + irq + softirq + steal,
        idle=idle,
        iowait=iowait,
        cpus=content.count(b"\ncpu", 0, end),
        highest=content[last + 4 : content.index(b" ", last)],
        running=running,
    )


def utilisation(before: Reading, after: Reading) -> float | None:
    """Return 1 - (d idle + d iowait) / d total, in 0..1.

    The kernel sometimes decreases `iowait`, which counts as no growth. None if another counter decreased, if no
    counter changed, or if a CPU was added or removed, since the idle time then jumps.
    """
    busy, idle = after.busy - before.busy, after.idle - before.idle
    if (after.cpus, after.highest) != (before.cpus, before.highest) or busy < 0 or idle < 0:
        return None
    total = busy + idle + max(0, after.iowait - before.iowait)
    return busy / total if total else None


class Cpu:
    """CPU utilisation and the number of runnable threads."""

    name = "cpu"
    metrics = ("cpu_util", "procs_running")
    optional = False

    def __init__(self, proc: Path) -> None:
        self.path = proc / "stat"
        self._parse = cached(parse)
        self._before: Reading | None = None
        self.facts: Mapping[str, int] = NO_FACTS

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - the ticks themselves are the time
        """Compare with the previous reading; the first one has no utilisation."""
        reading = self._parse(content)
        before, self._before = self._before, reading
        if before is None or before.cpus != reading.cpus:
            self.facts = {"cpus": reading.cpus}
        return (None if before is None else utilisation(before, reading), float(reading.running))
