"""Counters of one cgroup: CPU time, memory, pressure, and the time that a CPU quota throttled it.

Files stay open: a read costs 4 us instead of 16. In version 2 all files of a cgroup are in one directory. A hybrid
host has the same path below several mounts: CPU time and pressure in `unified`, memory and quotas in those of version
1, which has no pressure. A counter that a cgroup does not have is None; every tenth reading searches for it again,
since controllers may be enabled later.

While neither CPU time nor pressure changes, a reading reads only the CPU time, except every fifth one: a cgroup that
does not run allocates no memory and mostly does not wait. The pressure of one that waits without running is read up to
four seconds late, with its growth since the last complete reading. `memory.stat` costs as much as three other files,
and only its inactive file pages are needed. For a running cgroup every other reading reads them, and each reading after
a change of usage by 0.5 %: pages that are read repeatedly change from inactive to active while total usage is constant.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from producers.file import KernelFile

FILES = 6  # that a meter keeps open
QUOTA_FILES = 1  # that a quota keeps open

_ABSENT = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM)
_SEARCH = 10  # readings between searches for a missing file
_YOUNG = 3  # first readings, which all search
_CHANGE = 30  # readings between checks of a quota, which is set before the first process and rarely changes
_MOVED = 0.005
_TURNS = 5  # readings between complete ones

_MOST = 1 << 80  # above 64 bits of microseconds in nanoseconds, and far below what no float holds

Parse = Callable[[bytes], int]
Choice = tuple[Path | None, str, Parse]


class Counters(NamedTuple):
    """One reading of a cgroup, None for missing counters; all but `memory` only grow.

    Attributes:
        cpu: CPU time, in nanoseconds.
        memory: Working set (usage without inactive file pages), in bytes.
        cpu_pressure, memory_pressure, io_pressure: Time that some of its threads waited, in microseconds.
    """

    cpu: int | None
    memory: int | None
    cpu_pressure: int | None
    memory_pressure: int | None
    io_pressure: int | None


class Layout:
    """Mounts of a host's controllers; None for missing ones.

    Args:
        root: Mount of the cgroup trees.
        legacy: Whether to leave the unified tree of a hybrid host out, for cgroups that have no process there.
    """

    def __init__(self, root: Path, *, legacy: bool = False) -> None:
        self.root = root
        version_2 = (root / "cgroup.controllers").exists()
        unified = None if legacy else _first(root, "unified")
        self.unified = root if version_2 else unified
        self.memory = None if version_2 else _first(root, "memory")
        self.accounting = None if version_2 else _first(root, "cpuacct", "cpu,cpuacct")
        self.bandwidth = None if version_2 else _first(root, "cpu", "cpu,cpuacct")


def _first(root: Path, *names: str) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


class Quantity:
    """One number of a cgroup, from the first of several files that exists.

    Args:
        choices: Mount, path below it, and parser of the file; the preferred one first.
        keep: Whether the file may stay open.
    """

    __slots__ = ("_choices", "_content", "_file", "_keep", "_parse", "_readings", "_value")

    def __init__(self, *choices: Choice, keep: bool) -> None:
        self._choices = [(mount / name, parse) for mount, name, parse in choices if mount is not None]
        self._keep = keep
        self._file: KernelFile | None = None
        self._parse: Parse = int
        self._content: bytes | None = None
        self._value = 0  # most files do not change between readings
        self._readings = 0

    def read(self) -> int | None:
        """Return the number; None: the cgroup does not have it.

        Raises:
            OSError: The file exists but cannot be read.
            ValueError: It is malformed.
        """
        if self._file is None:
            self._readings += 1
            if self._readings > _YOUNG and self._readings % _SEARCH:
                return None
            return self._search()
        try:
            content = self._file.read()
        except OSError as error:
            self._file = None
            if error.errno in _ABSENT:
                return None
            raise
        if not self._keep:
            self._file.close()
        if content != self._content:
            value = self._parse(content)
            if abs(value) >= _MOST:
                raise ValueError(f"{content[:40]!r} is no number of a kernel")
            self._value, self._content = value, content
        return self._value

    def _search(self) -> int | None:
        for path, parse in self._choices:
            self._file, self._parse, self._content = KernelFile(path), parse, None
            value = self.read()
            if value is not None:
                return value
        return None


class Meter:
    """Reads one cgroup.

    Args:
        layout: Mounts of the controllers.
        path: The cgroup, below the root of each tree.
        keep: Whether files may stay open.
    """

    __slots__ = (
        "_cpu",
        "_current",
        "_inactive",
        "_last",
        "_looked",
        "_pages",
        "_pressures",
        "_turn",
        "complete",
        "idle",
        "still",
    )

    def __init__(self, layout: Layout, path: str, *, keep: bool) -> None:
        unified, memory = layout.unified, layout.memory
        self._cpu = Quantity(
            (unified, f"{path}/cpu.stat", _used), (layout.accounting, f"{path}/cpuacct.usage", int), keep=keep
        )
        self._current = Quantity(
            (memory, f"{path}/memory.usage_in_bytes", int), (unified, f"{path}/memory.current", int), keep=keep
        )
        self._inactive = Quantity(
            (memory, f"{path}/memory.stat", _inactive_of_all), (unified, f"{path}/memory.stat", _inactive), keep=keep
        )
        self._pressures = [
            Quantity((unified, f"{path}/{name}.pressure", _stalled), keep=keep) for name in ("cpu", "memory", "io")
        ]
        self._last = Counters(None, None, None, None, None)
        self._looked, self._pages = -1, 0  # usage at the last reading of inactive pages, and their bytes
        self._turn = hash(path) % _TURNS  # not all in the same second
        self.idle = False  # whether no counter changed between the last two readings
        self.still = False  # whether it was idle before the last reading and has not run since
        self.complete = False  # whether the last reading read all counters

    def read(self) -> Counters:
        """Return the current counters.

        Raises:
            OSError: A file exists but cannot be read.
            ValueError: It is malformed.
        """
        self._turn += 1
        used, last = self._cpu.read(), self._last
        self.still = self.idle and used == last.cpu and used is not None
        self.complete = not self.still or self._turn % _TURNS == 0
        if not self.complete:
            return last
        cpu, memory, io = self._pressures
        self._last = Counters(used, self._working_set(), cpu.read(), memory.read(), io.read())
        self.idle = self._last._replace(memory=last.memory) == last
        return self._last

    def _working_set(self) -> int | None:
        current = self._current.read()
        if current is None:
            return None
        if self.idle or self._turn % 2 == 0 or abs(current - self._looked) > _MOVED * current:
            self._pages, self._looked = self._inactive.read() or 0, current
        return max(0, current - self._pages)


class CpuQuota:
    """Reads the time that a cgroup's own CPU quota throttled it, if it has one."""

    __slots__ = ("_limit", "_limited", "_phase", "_readings", "_throttled")

    def __init__(self, layout: Layout, path: str, *, keep: bool) -> None:
        unified, bandwidth = layout.unified, layout.bandwidth
        self._throttled = Quantity(
            (bandwidth, f"{path}/cpu.stat", _throttled), (unified, f"{path}/cpu.stat", _throttled), keep=keep
        )
        self._limit = Quantity(
            (bandwidth, f"{path}/cpu.cfs_quota_us", int), (unified, f"{path}/cpu.max", _maximum), keep=False
        )
        self._limited = False
        self._readings = 0
        self._phase = hash(path)  # not all in the same second

    def read(self) -> int | None:
        """Return the time in nanoseconds, summed over CPUs; None: there is no quota.

        Raises:
            OSError: A file exists but cannot be read.
            ValueError: It is malformed.
        """
        self._readings += 1
        if self._readings <= _YOUNG or (self._readings + self._phase) % _CHANGE == 0:
            self._limited = (self._limit.read() or -1) > 0
        return self._throttled.read() if self._limited else None


def all_time(layout: Layout) -> Quantity:
    """Return the CPU time of the whole node, in nanoseconds."""
    return Quantity((layout.accounting, "cpuacct.usage", int), (layout.unified, "cpu.stat", _used_by_all), keep=True)


def _used(content: bytes) -> int:
    return _after(content, b"usage_usec ") * 1000


def _used_by_all(content: bytes) -> int:
    """Add user and system time: `usage_usec` of the root includes steal before Linux 6.14."""
    return (_after(content, b"\nuser_usec ") + _after(content, b"\nsystem_usec ")) * 1000


def _throttled(content: bytes) -> int:
    """Parse `throttled_usec` of version 2, or `throttled_time` of version 1, in nanoseconds."""
    return (
        _after(content, b"throttled_time ")
        if b"throttled_time " in content
        else _after(content, b"throttled_usec ") * 1000
    )


def _stalled(content: bytes) -> int:
    start = content.index(b"total=") + 6
    return int(content[start : content.index(b"\n", start)])


def _inactive(content: bytes) -> int:
    return _after(content, b"\ninactive_file ")


def _inactive_of_all(content: bytes) -> int:
    """Parse the total of the cgroup and those below it: version 1 has the cgroup's own pages separately."""
    return _after(content, b"\ntotal_inactive_file ")


def _maximum(content: bytes) -> int:
    return -1 if content.startswith(b"max") else int(content[: content.index(b" ")])


def _after(content: bytes, key: bytes) -> int:
    start = content.index(key) + len(key)
    return int(content[start : content.index(b"\n", start)])
