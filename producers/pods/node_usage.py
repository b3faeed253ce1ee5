"""Usage of the whole node, from which the usage of all pods is subtracted."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from producers import cpu, memory, pressure, throttle
from producers.file import KernelFile
from producers.pods import meter
from producers.pods.meter import Layout
from producers.pods.pod_usage import Usage
from producers.source import rate


class Reading(NamedTuple):
    """Counters of the node; None for those that the kernel does not have.

    Attributes:
        at: CLOCK_MONOTONIC, in nanoseconds.
        stat: CPU ticks.
        waited: Time that some thread waited for a CPU, in microseconds.
        spent: CPU time of the whole node, in nanoseconds.
        used: Memory in use, in bytes.
        working_set: The same as the kubelet counts it: with file pages that are in use, which the kernel would drop.
    """

    at: int
    stat: cpu.Reading
    waited: int | None
    spent: int | None
    used: int | None
    working_set: int | None


class Files:
    """The files of the node.

    Args:
        layout: Mounts of the controllers.
        proc: Mount of `/proc`.
    """

    def __init__(self, layout: Layout, proc: Path) -> None:
        self._stat, self._memory = KernelFile(proc / "stat"), KernelFile(proc / "meminfo")
        self._pressure, self._load = KernelFile(proc / "pressure/cpu"), KernelFile(proc / "loadavg")
        self._spent = meter.all_time(layout)

    def read(self, now: int) -> Reading:
        """Read all counters.

        Raises:
            OSError: A file is missing.
            ValueError: It is malformed; also LookupError.
        """
        spent = self._spent.read()
        try:
            waited = pressure.parse(self._pressure.read())[0]
        except OSError:  # some kernels lack it
            waited = None
        content = self._memory.read()
        total, available, _ = memory.parse(content)
        used = None if available is None else total - available
        return Reading(now, cpu.parse(self._stat.read()), waited, spent, used, memory.working_set(content))

    def runnable(self) -> int:
        """Return the kernel's current number of runnable threads, without the reader."""
        return int(self._load.read().split(None, 4)[3].partition(b"/")[0]) - 1


def rest(before: Reading, after: Reading, pods: Collection[Usage], *, evicts: bool) -> dict[str, Any]:
    """Return the usage outside pods, as fields of a `PodUsageBlock`.

    Args:
        before: Reading of a second ago.
        after: Current reading.
        pods: Usage of each pod in between.
        evicts: A kubelet evicts pods here, by the working set of the machine.
    """
    cores = outside = None
    elapsed = after.at - before.at
    if before.spent is not None and after.spent is not None:
        whole = rate(before.spent, after.spent, elapsed)
        cores = None if whole is None else round(max(0.0, whole - sum(pod.cpu_cores or 0 for pod in pods)), 6)
    used = after.used if after.working_set is None or not evicts else after.working_set
    if used is not None:
        outside = max(0, used - sum(pod.memory_bytes or 0 for pod in pods))
    return {"system_cpu_cores": cores, "system_memory_bytes": outside}


def quota_share(before: Reading, after: Reading, pods: Collection[Usage], waiting: float | None) -> float | None:
    """Return the share of CPU pressure that quotas cause; None: the pressure is unknown.

    Args:
        before: Reading of a second ago.
        after: Current reading.
        pods: Usage of each pod in between.
        waiting: Mean `throttle.excess` in between; None: not sampled, so no pressure is attributed to quotas.
    """
    elapsed = (after.at - before.at) / 1000
    if before.waited is None or after.waited is None:
        return None
    waited = rate(before.waited, after.waited, elapsed)
    busy = cpu.utilisation(before.stat, after.stat)
    held = sum(pod.held or 0 for pod in pods) / 1000 / elapsed
    if waited is None or busy is None or waiting is None:
        return 0.0
    return throttle.quota_share(waited, held, busy * after.stat.cpus, waiting)
