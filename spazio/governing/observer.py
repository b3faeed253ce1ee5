"""What this node and each of its pods uses, and how much its threads wait for a CPU.

Pressure of a cgroup (PSI, `cpu.pressure`) tells whose threads wait. It exists in version 2, and on a hybrid host whose
runtime puts containers into the unified tree, too. A thread that a quota throttles counts as waiting, so the throttled
share is deducted. Without it there is only the pressure of the whole node, which the governor's own quotas raise. It
counts only while more threads are runnable than there are CPUs, since throttled ones are not, and only while the node
is busy, since lower tiers alone may wait as they like.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from producers import cpu, memory, pressure, throttle
from producers.file import KernelFile
from producers.pods.census import Census, Pod
from producers.pods.meter import Layout
from producers.pods.pod_usage import Gauge, Usage
from producers.source import clip, rate

_CARRY = 0.5  # weight of earlier samples in the share of time in which threads wait
_RESERVE = 256  # descriptors for all other uses


class Node(NamedTuple):
    """The node since the reading before; None: unknown.

    Attributes:
        elapsed_seconds: Time since then.
        cores: Its CPUs.
        used_cores: CPU time of everything divided by time.
        memory_bytes: Its memory.
        available_bytes: Memory that is available.
        waiting: Share of time that some thread waited for a CPU and not for a quota, 0..1.
        usages: By UID of the pod, or id of a container outside pods.
        pods: Cgroups by the same.
    """

    elapsed_seconds: float
    cores: float
    used_cores: float | None
    memory_bytes: int
    available_bytes: int | None
    waiting: float | None
    usages: Mapping[str, Usage]
    pods: Mapping[str, Pod]

    def production_cores(self, lent: Collection[str]) -> float | None:
        """Return what everything but some pods uses, in cores."""
        if self.used_cores is None:
            return None
        return max(0.0, self.used_cores - sum(self.usages[uid].cpu_cores or 0.0 for uid in lent))

    def pressure(self, lent: Collection[str], busy_from: float) -> float | None:
        """Return the share of time that threads of production wait for a CPU, 0..1.

        Args:
            lent: UIDs of pods of lower tiers.
            busy_from: Share of the node's cores in use, from which its pressure counts where pods have none.
        """
        pressured = {uid: usage for uid, usage in self.usages.items() if usage.cpu_pressure is not None}
        if pressured:
            own = [_waited(usage) for uid, usage in pressured.items() if uid not in lent]
            return max(own, default=0.0)
        if self.used_cores is None or self.waiting is None:
            return None
        return self.waiting if self.used_cores >= busy_from * self.cores else 0.0


def _waited(usage: Usage) -> float:
    return clip((usage.cpu_pressure or 0.0) - (usage.throttled or 0.0))


class _Counters(NamedTuple):
    """Counters of the node: time in seconds, CPU ticks, and microseconds that some thread waited."""

    at: float
    stat: cpu.Reading
    waited: int | None


class Observer:
    """Reads the node and its pods repeatedly.

    Args:
        census: Census of the node's pods.
        layout: Mounts of the controllers.
        proc: Mount of `/proc`.
        descriptors: Number of files that this process may keep open.
        monotonic: CLOCK_MONOTONIC in nanoseconds.
    """

    def __init__(
        self, census: Census, layout: Layout, proc: Path, *, descriptors: int, monotonic: Callable[[], int]
    ) -> None:
        self._census, self._layout, self._monotonic = census, layout, monotonic
        self._stat, self._memory = KernelFile(proc / "stat"), KernelFile(proc / "meminfo")
        self._pressure, self._load = KernelFile(proc / "pressure/cpu"), KernelFile(proc / "loadavg")
        self._descriptors = descriptors - _RESERVE
        self._gauges: dict[str, Gauge] = {}
        self._present: frozenset[str] = frozenset()
        self._before: _Counters | None = None
        self._runnable = 0.0

    def read(self) -> Node | None:
        """Read everything; None: there are no cgroups, or no earlier reading to compare with.

        Raises:
            OSError: A file of the node is missing.
            ValueError: It is malformed; also LookupError.
        """
        account = self._census.take(0.0)
        if account is None:
            return None
        pods = {pod.key: pod for pod in account.pods}
        usages = self._usages(pods)
        self._present = frozenset(pod.key for pod in (*account.pods, *account.idle))
        now = _Counters(self._monotonic() / 1e9, cpu.parse(self._stat.read()), self._waited())
        total, available, _ = memory.parse(self._memory.read())
        excess = throttle.excess(self._runnable_threads(), now.stat.cpus)
        self._runnable = _CARRY * self._runnable + (1 - _CARRY) * (excess > 0)
        before, self._before = self._before, now
        if before is None or now.at <= before.at:
            return None
        busy = cpu.utilisation(before.stat, now.stat)
        return Node(
            now.at - before.at,
            now.stat.cpus,
            None if busy is None else busy * now.stat.cpus,
            total,
            available,
            self._waiting(before, now),
            usages,
            {uid: pods[uid] for uid in usages},
        )

    def _usages(self, pods: Mapping[str, Pod]) -> dict[str, Usage]:
        """Return the usage of each pod that can be read; the counters of a new pod began at 0."""
        before = None if self._before is None else round(self._before.at * 1e9)
        gauges, self._gauges = self._gauges, {}
        open_files = sum(gauge.files for gauge in gauges.values())
        usages: dict[str, Usage] = {}
        for uid, pod in pods.items():
            gauge = gauges.get(uid)
            if gauge is None:
                since = None if uid in self._present else before
                gauge = Gauge(self._layout, keep=open_files < self._descriptors, since=since)
            self._gauges[uid] = gauge
            try:
                usage = gauge.read(pod, self._monotonic())
            except (OSError, ValueError, LookupError):  # it ends, or counts as production
                continue
            if uid not in gauges:
                open_files += gauge.files
            if usage is not None:
                usages[uid] = usage
        return usages

    def _waited(self) -> int | None:
        try:
            return pressure.parse(self._pressure.read())[0]
        except OSError:  # some kernels lack it
            return None

    def _runnable_threads(self) -> int:
        """Return the kernel's number of runnable threads, without this one."""
        return int(self._load.read().split(None, 4)[3].partition(b"/")[0]) - 1

    def _waiting(self, before: _Counters, now: _Counters) -> float | None:
        if before.waited is None or now.waited is None:
            return None
        share = rate(before.waited, now.waited, (now.at - before.at) * 1e6)
        return None if share is None else min(clip(share), self._runnable)
