"""How busy the CPUs are, from `/proc/stat`.

The first line adds up all CPUs, in ticks of 10 ms: user, nice, system, idle, iowait, irq, softirq, steal, guest,
guest_nice (proc_stat(5)). Guest time is already inside user and nice, so only the first eight are added. At ten
reads a second a CPU moves by ten ticks, hence the value has steps of 1 / (10 CPUs).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from producers.source import NO_FACTS, Values, remembered


class Reading(NamedTuple):
    """One look at `/proc/stat`; times in ticks, over all CPUs since boot."""

    busy: int
    idle: int
    iowait: int
    cpus: int
    highest: bytes
    running: int


def parse(content: bytes) -> Reading:
    """Read the CPU lines and `procs_running`.

    Raises:
        ValueError: There is no such line, or it holds something else than numbers.
    """
    total = content[: content.index(b"\n")].split(None, 9)
    if total[0] != b"cpu":
        raise ValueError(f"/proc/stat begins with {total[0]!r}, not with cpu")
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, total[1:9])
    end = content.index(b"\nintr")
    last = content.rindex(b"\ncpu", 0, end)
    start = content.index(b"\nprocs_running ") + len(b"\nprocs_running ")
    return Reading(
        busy=user + nice + system + irq + softirq + steal,
        idle=idle,
        iowait=iowait,
        cpus=content.count(b"\ncpu", 0, end),
        highest=content[last + 4 : content.index(b" ", last)],
        running=int(content[start : content.index(b"\n", start)]),
    )


def utilisation(before: Reading, after: Reading) -> float | None:
    """Return 1 - (d idle + d iowait) / d total, in 0..1.

    The kernel lets `iowait` decrease now and then, which counts as no growth. None where another counter went
    backwards, where nothing moved, or where a CPU came or went: its idle time then jumps.
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
        self._parse = remembered(parse)
        self._before: Reading | None = None
        self.facts: Mapping[str, int] = NO_FACTS

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - the ticks themselves are the time
        """Compare with the reading before; the first knows no utilisation."""
        reading = self._parse(content)
        before, self._before = self._before, reading
        if before is None or before.cpus != reading.cpus:
            self.facts = {"cpus": reading.cpus}
        return (None if before is None else utilisation(before, reading), float(reading.running))
