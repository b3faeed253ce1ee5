"""What one pod used between two readings of its cgroups."""

from collections.abc import Iterable
from typing import NamedTuple

from producers.pods import meter
from producers.pods.census import Pod
from producers.pods.meter import Counters, Layout, Meter, Quota
from producers.source import clip, rate
from schemas.messages.telemetry import OLD_SECONDS

_NOTHING = Counters(0, None, 0, 0, 0)


class Usage(NamedTuple):
    """Usage over the time since the reading before; None where it is not known.

    Attributes:
        cpu_cores: CPU time over time.
        memory_bytes: Working set.
        cpu_pressure, memory_pressure, io_pressure: Share of time that some thread waited.
        throttled: Share of time that a quota held the pod back.
        spent: CPU time since the reading before, in nanoseconds; 0 if it is not known.
        held: Time that quotas held it back, in nanoseconds, added up over CPUs; None: it has no quota.
        age: Seconds that it is known to run, at most `OLD_SECONDS`.
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
    """Reads one pod, again and again.

    Args:
        layout: Where the controllers are.
        paths: The pod's cgroups, as `Pod.paths`.
        keep: Whether files may be kept open.
        since: When (CLOCK_MONOTONIC in nanoseconds) the pod was not there yet, so that its counters began at 0 since
            then; None: nothing is known of before.
    """

    def __init__(self, layout: Layout, paths: tuple[str, ...], *, keep: bool, since: int | None) -> None:
        self._layout, self._paths, self._keep = layout, paths, keep
        self._meters = [Meter(layout, path, keep=keep) for path in paths]
        self._quotas: dict[str, Quota] = {}
        self._held: dict[str, int] = {}
        self._before = None if since is None else _NOTHING
        self._at = since or 0
        self._since = since

    def age_seconds(self, now: int) -> int:
        """Return for how long the pod is known to run, at most `OLD_SECONDS`; one that was there before us is old.

        Args:
            now: CLOCK_MONOTONIC in nanoseconds.
        """
        return OLD_SECONDS if self._since is None else min((now - self._since) // 1_000_000_000, OLD_SECONDS)

    @property
    def files(self) -> int:
        """How many files it may keep open."""
        return (meter.FILES * len(self._meters) + meter.QUOTA_FILES * len(self._quotas)) if self._keep else 0

    def read(self, pod: Pod, now: int) -> Usage | None:
        """Read all counters; None: the pod has gone.

        Args:
            pod: As the census has it now.
            now: CLOCK_MONOTONIC in nanoseconds.

        Raises:
            OSError: A file cannot be read, although it is there.
            ValueError: It is not what it should be.
        """
        counters = _sum([each.read() for each in self._meters])
        held = self._hold(pod)
        before, elapsed = self._before, now - self._at
        if counters.cpu is None and counters.memory is None and (before is None or before.cpu is not None):
            return None
        self._before, self._at = counters, now
        if before is None or elapsed <= 0:
            return Usage(None, counters.memory, None, None, None, None, 0, held, self.age_seconds(now))
        if (counters.cpu or 0) < (before.cpu or 0):
            before = _NOTHING  # a cgroup was made anew under the same path
        spent = (counters.cpu or 0) - (before.cpu or 0)
        return Usage(
            None if counters.cpu is None or before.cpu is None else spent / elapsed,
            counters.memory,
            _share(before.cpu_pressure, counters.cpu_pressure, elapsed),
            _share(before.memory_pressure, counters.memory_pressure, elapsed),
            _share(before.io_pressure, counters.io_pressure, elapsed),
            None if held is None else clip(held / max(elapsed, spent + held, 1)),
            spent,
            held,
            self.age_seconds(now),
        )

    def _hold(self, pod: Pod) -> int | None:
        """Return for how long quotas have held the pod back since the reading before.

        A pod and its containers may each have a quota, and are then mostly held back at the same time: the larger
        of the pod's time and its containers' sum counts.
        """
        known = self._before is not None
        if all(each.idle for each in self._meters) and known:
            return 0 if self._held else None
        wanted = dict.fromkeys((*self._paths, *pod.containers))
        self._quotas = {path: self._quotas.get(path) or Quota(self._layout, path, keep=self._keep) for path in wanted}
        totals = {path: total for path, quota in self._quotas.items() if (total := quota.read()) is not None}
        growth = {path: max(0, total - self._held.get(path, 0 if known else total)) for path, total in totals.items()}
        self._held = {path: total for path, total in (self._held | totals).items() if path in wanted}
        if not totals:
            return None
        whole = sum(growth.get(path, 0) for path in self._paths)
        return max(whole, sum(growth.get(path, 0) for path in pod.containers))


def _sum(readings: list[Counters]) -> Counters:
    """Add up what several cgroups of one pod used; of their waiting the longest counts, since it overlaps."""
    if len(readings) == 1:
        return readings[0]
    cpu, memory, *pressures = zip(*readings, strict=True)
    return Counters(_total(cpu), _total(memory), *(max(_known(column), default=None) for column in pressures))


def _total(values: Iterable[int | None]) -> int | None:
    known = _known(values)
    return sum(known) if known else None


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _share(before: int | None, after: int | None, elapsed: int) -> float | None:
    """Return the ratio of a growth in microseconds to a time in nanoseconds."""
    if before is None or after is None:
        return None
    growth = rate(before, after, elapsed / 1000)
    return None if growth is None else clip(growth)
