"""Usage of one pod between two readings of its cgroups."""

from collections.abc import Iterable
from typing import NamedTuple

from producers.pods import meter
from producers.pods.census import Pod
from producers.pods.meter import Counters, CpuQuota, Layout, Meter
from producers.source import clip
from schemas.messages.telemetry import OLD_SECONDS

_NOTHING = Counters(0, None, 0, 0, 0)


class Usage(NamedTuple):
    """Usage over the time since the previous reading; None where it is unknown.

    Attributes:
        cpu_cores: CPU time divided by time.
        memory_bytes: Working set.
        cpu_pressure, memory_pressure, io_pressure: Share of time that some thread waited.
        throttled: Share of time that a quota throttled the pod.
        spent: CPU time since the previous reading, in nanoseconds; 0 if unknown.
        held: Time that quotas throttled it, in nanoseconds, summed over CPUs; None: it has no quota.
        age: Seconds since its start as far as known, at most `OLD_SECONDS`.
    """

    cpu_cores: float | None
    memory_bytes: int | None
    cpu_pressure: float | None
    memory_pressure: float | None
    io_pressure: float | None
    throttled: float | None
    spent: int
    held: int | None
    age: int = OLD_SECONDS


class Gauge:
    """Reads one pod repeatedly.

    Args:
        layout: Mounts of the controllers.
        keep: Whether files may stay open.
        since: Time (CLOCK_MONOTONIC in nanoseconds) at which the pod did not exist yet, so that its counters started
            at 0 after it; None: unknown.
    """

    def __init__(self, layout: Layout, *, keep: bool, since: int | None) -> None:
        self._layout, self._keep, self._legacy = layout, keep, False
        self._meters: dict[str, Meter] = {}
        self._before: dict[str, Counters] = {}
        self._completed: dict[str, int] = {}  # time of each meter's last complete reading
        self._quotas: dict[str, CpuQuota] = {}
        self._held: dict[str, int] = {}
        self._at = self._since = since

    def age_seconds(self, now: int) -> int:
        """Return the age of the pod, at most `OLD_SECONDS`; a pod that started before the agent counts as old.

        Args:
            now: CLOCK_MONOTONIC in nanoseconds.
        """
        return OLD_SECONDS if self._since is None else min((now - self._since) // 1_000_000_000, OLD_SECONDS)

    @property
    def files(self) -> int:
        """Number of files that it may keep open."""
        return (meter.FILES * len(self._meters) + meter.QUOTA_FILES * len(self._quotas)) if self._keep else 0

    def read(self, pod: Pod, now: int) -> Usage | None:
        """Read all counters; None: the pod is gone.

        Args:
            pod: The pod in the newest census.
            now: CLOCK_MONOTONIC in nanoseconds.

        Raises:
            OSError: A file exists but cannot be read.
            ValueError: It is malformed.
        """
        if pod.legacy != self._legacy:
            self._change_tree(legacy=pod.legacy)
        if tuple(self._meters) != pod.paths:
            self._follow(pod.paths)
        readings = {path: each.read() for path, each in self._meters.items()}
        held = self._hold(pod)
        before, at, elapsed = self._before, self._at, now - (self._at or 0)
        # What a cgroup had used before it could not be read for a moment is still no new usage.
        present = {path: each for path, each in readings.items() if each.cpu is not None or each.memory is not None}
        if not present and (not before or any(each.cpu is not None for each in before.values())):
            return None
        grown = _sum([self._growth(path, counters, now) for path, counters in readings.items()])
        before.update(present or readings)
        self._at = now
        if at is None or elapsed <= 0:
            return Usage(None, grown.memory, None, None, None, None, 0, held, self.age_seconds(now))
        spent = grown.cpu or 0
        return Usage(
            None if grown.cpu is None else spent / elapsed,
            grown.memory,
            _share(grown.cpu_pressure, elapsed),
            _share(grown.memory_pressure, elapsed),
            _share(grown.io_pressure, elapsed),
            None if held is None else clip(held / max(elapsed, spent + held, 1)),
            spent,
            held,
            self.age_seconds(now),
        )

    def _change_tree(self, *, legacy: bool) -> None:
        """Go on in another tree, whose counters are new unless the pod has used nothing yet."""
        if any(each.cpu for each in self._before.values()):
            self._at = None
        self._layout, self._legacy = Layout(self._layout.root, legacy=legacy), legacy
        self._meters, self._before, self._completed = {}, {}, {}

    def _follow(self, paths: tuple[str, ...]) -> None:
        """Go on with these cgroups of the pod; one that is new began at 0 since the last reading."""
        meters = self._meters
        self._meters = {path: meters.get(path) or Meter(self._layout, path, keep=self._keep) for path in paths}
        self._before = {path: counters for path, counters in self._before.items() if path in self._meters}
        self._completed = {path: at for path, at in self._completed.items() if path in self._meters}

    def _growth(self, path: str, counters: Counters, now: int) -> Counters:
        """Return what a cgroup's counters grew by since the last reading.

        If it did not run, its waiting time may have grown at any time since the last complete reading.
        """
        growth, at, each = _growth(self._before.get(path, _NOTHING), counters), self._at, self._meters[path]
        completed = self._completed.get(path, at)
        if each.complete:
            self._completed[path] = now
        if not each.still or at is None or completed is None or completed >= at:
            return growth
        used, memory, *waited = growth
        part = (now - at) / (now - completed)
        return Counters(used, memory, *(None if time is None else round(time * part) for time in waited))

    def _hold(self, pod: Pod) -> int | None:
        """Return the time that quotas throttled the pod since the previous reading.

        A pod and its containers may each have a quota, which mostly throttle at the same time: the larger of the pod's
        time and its containers' sum counts.
        """
        has_previous = self._at is not None
        if all(each.idle for each in self._meters.values()) and has_previous:
            return 0 if self._held else None
        wanted = dict.fromkeys((*pod.paths, *pod.containers))
        self._quotas = {
            path: self._quotas.get(path) or CpuQuota(self._layout, path, keep=self._keep) for path in wanted
        }
        totals = {path: total for path, quota in self._quotas.items() if (total := quota.read()) is not None}
        growth = {
            path: max(0, total - self._held.get(path, 0 if has_previous else total)) for path, total in totals.items()
        }
        self._held = {path: total for path, total in (self._held | totals).items() if path in wanted}
        if not totals:
            return None
        whole = sum(growth.get(path, 0) for path in pod.paths)
        return max(whole, sum(growth.get(path, 0) for path in pod.containers))


def _growth(before: Counters, after: Counters) -> Counters:
    """Return what one cgroup's counters grew by, None where it is unknown, and its memory as it is now."""
    if after.cpu is not None and after.cpu < (before.cpu or 0):
        before = _NOTHING  # a new cgroup has the same path
    used, _, *waited = [
        None if old is None or new is None else new - old for old, new in zip(before, after, strict=True)
    ]
    return Counters(used, after.memory, *waited)


def _sum(grown: list[Counters]) -> Counters:
    """Add the usage of several cgroups of one pod; of their waiting times, which overlap, the longest counts."""
    if len(grown) == 1:
        return grown[0]
    cpu, memory, *pressures = zip(*grown, strict=True)
    return Counters(_total(cpu), _total(memory), *(max(_present(column), default=None) for column in pressures))


def _total(values: Iterable[int | None]) -> int | None:
    present = _present(values)
    return sum(present) if present else None


def _present(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _share(growth: int | None, elapsed: int) -> float | None:
    """Return the ratio of a time in microseconds to one in nanoseconds; None: it shrank, and is unknown."""
    return None if growth is None or growth < 0 else clip(growth / (elapsed / 1000))
