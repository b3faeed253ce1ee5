"""The control files of a cgroup: which there are, and their contents as amounts.

Version 2 has cpu.weight, cpu.idle, cpu.max and memory.high; version 1 has cpu.shares, cpu.cfs_quota_us and, from Linux
5.15 on, cpu.idle (Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst). Version 1 has no
memory.high, and its memory.soft_limit_in_bytes is none: it acts only once the node reclaims, and best-effort.
"""

import math
from pathlib import Path
from typing import NamedTuple

from producers.pods.meter import Layout

IDLE, WEIGHT, SHARES, MAXIMUM, QUOTA, HIGH = (
    "cpu.idle",
    "cpu.weight",
    "cpu.shares",
    "cpu.max",
    "cpu.cfs_quota_us",
    "memory.high",
)
NAMES = frozenset((IDLE, WEIGHT, SHARES, MAXIMUM, QUOTA, HIGH))
LEAST_CORES = 0.01  # 1 ms in 100 ms: the kernel refuses a shorter quota
_PERIOD = "cpu.cfs_period_us"
_PERIOD_US, _LEAST_US = 100_000, 1_000
_MID_WEIGHTS = {WEIGHT: "10", SHARES: "102"}  # a tenth of the default
_BATCH_WEIGHTS = {WEIGHT: "1", SHARES: "2"}  # the least


class Limit(NamedTuple):
    """What one pod may use.

    Attributes:
        cores: Its CPU.
        memory_bytes: Its memory; None: no limit.
        idle: It runs only when nothing else of its parent wants the CPU, where the kernel can do that.
    """

    cores: float
    memory_bytes: int | None
    idle: bool


def files(layout: Layout, paths: tuple[str, ...], containers: tuple[str, ...], limit: Limit) -> dict[Path, str | None]:
    """Return what the control files of a pod are to contain; None: it is only to be kept for later.

    The caller leaves out what would raise a value. In version 1 the kernel refuses a quota below that of a child, so
    quotas of containers are named too, if they have any.

    Args:
        layout: Mounts of the controllers.
        paths: Cgroups of the pod, below the root of each tree.
        containers: Cgroups of its containers.
        limit: What it may use.
    """
    wanted: dict[Path, str | None] = {}
    for path in paths:
        folder = _folder(layout, path)
        if folder is not None:
            wanted |= _cpu(folder, limit)
        if limit.memory_bytes is not None and layout.unified is not None:
            high = layout.unified / path / HIGH
            wanted |= {high: str(limit.memory_bytes)} if high.exists() else {}
    for path in containers:
        inner = None if layout.bandwidth is None or path in paths else layout.bandwidth / path / QUOTA
        if inner is not None and (own := _read(inner)) is not None and not own.startswith("-"):
            wanted[inner] = _quota(inner, limit.cores)
    return wanted


def amount(name: str, text: str) -> float:
    """Return how much a control file grants; only amounts of one kind of file can be compared.

    Raises:
        ValueError: It is malformed.

    >>> amount("cpu.max", "50000 100000"), amount("cpu.cfs_quota_us", "-1"), amount("cpu.idle", "1")
    (0.5, inf, 0.0)
    """
    if name == MAXIMUM:
        quota, period = text.split()
        return math.inf if quota == "max" else int(quota) / int(period)
    if name == IDLE:
        return float(1 - int(text))
    if text == "max" or (name == QUOTA and int(text) < 0):
        return math.inf
    return float(int(text))


def order(name: str, depth: int, *, lowers: bool) -> tuple[int, int]:
    """Return the place of a write among others.

    The kernel refuses to weigh an idle cgroup, so that mark goes first and comes last. A quota of version 1 may not be
    below that of a child, so children are lowered before their parents and raised after them.
    """
    if name == IDLE:
        return (3, 0) if lowers else (0, 0)
    if name in (WEIGHT, SHARES):
        return (1, 0)
    return (2, -depth) if lowers else (2, depth)


def _cpu(folder: Path, limit: Limit) -> dict[Path, str | None]:
    quota = next((folder / name for name in (QUOTA, MAXIMUM) if (folder / name).exists()), None)
    weight = next((folder / name for name in (SHARES, WEIGHT) if (folder / name).exists()), None)
    wanted: dict[Path, str | None] = {} if quota is None else {quota: _quota(quota, limit.cores)}
    if limit.idle and (folder / IDLE).exists():
        wanted[folder / IDLE] = "1"
        if weight is not None:
            wanted[weight] = None  # the kernel sets it with the mark, and forgets it without
    elif weight is not None:
        wanted[weight] = (_BATCH_WEIGHTS if limit.idle else _MID_WEIGHTS)[weight.name]
    return wanted


def _quota(file: Path, cores: float) -> str:
    """Return a quota in the form of its file, over the period that is set there."""
    if file.name == MAXIMUM:
        period = int((_read(file) or f"max {_PERIOD_US}").split()[1])
        return f"{max(_LEAST_US, round(cores * period))} {period}"
    period = int(_read(file.with_name(_PERIOD)) or _PERIOD_US)
    return str(max(_LEAST_US, round(cores * period)))


def _folder(layout: Layout, path: str) -> Path | None:
    """Return where the CPU controller has a cgroup: in version 1 if it is mounted there, else in version 2."""
    for mount in (layout.bandwidth, layout.unified):
        if mount is not None and any((mount / path / name).exists() for name in (QUOTA, MAXIMUM)):
            return mount / path
    return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
