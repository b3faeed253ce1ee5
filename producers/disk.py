"""Disk utilisation and throughput, from `/proc/diskstats`.

Only whole physical disks count. The name alone decides, since `/sys` may not be mounted where the agent runs. Excluded
are devices in memory and devices on top of other disks, whose requests would count twice: loop, ram, zram, device
mapper (LVM, dm-crypt, multipath), md, bcache, drbd, ZFS volumes, and optical and floppy drives. The hidden paths of an
NVMe multipath disk (`nvme0c1n1` of `nvme0n1`) count as that disk, for which kernels up to about 6.1 account nothing;
newer ones account both, so the larger counts. Partitions follow the kernel's naming rule: the name of a listed disk
and a number, with a `p` between them if the disk's name ends in a digit (`sda1`, `nvme0n1p1`). So `xvda1`, which some
clouds offer without an `xvda`, is a disk.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from producers.source import NO_FACTS, Values, cached, rate

_SECTOR_BYTES = 512  # of this file, whatever the disk's own sectors are
_STACKED = re.compile(rb"(?:loop|z?ram|dm-|md|md_d|sr|fd|drbd|bcache|zd)\d|nvme\d+c\d+n\d")
_NVME_PATH = re.compile(rb"(nvme\d+)c\d+(n\d+)")


class Counters(NamedTuple):
    """One disk since boot: bytes read and written, and milliseconds with at least one request in flight."""

    moved: int
    active: int


_NOTHING = Counters(0, 0)


def parse(content: bytes) -> dict[bytes, Counters]:
    """Return the counters of each whole disk (Documentation/admin-guide/iostats.rst of the kernel).

    Raises:
        ValueError: A field is not a number.
        LookupError: A line is too short.
    """
    lines = [line.split(None, 13) for line in content.splitlines()]
    counted = disks(tuple([fields[2] for fields in lines]))
    own: dict[bytes, Counters] = {}
    paths: dict[bytes, Counters] = {}
    for fields in lines:
        if (disk := counted.get(fields[2])) is None:
            continue
        counters = Counters((int(fields[5]) + int(fields[9])) * _SECTOR_BYTES, int(fields[12]))
        if disk == fields[2]:
            own[disk] = counters
        else:
            others = paths.get(disk, _NOTHING)
            paths[disk] = Counters(others.moved + counters.moved, max(others.active, counters.active))
    return own | {disk: Counters(*map(max, own.get(disk, _NOTHING), counters)) for disk, counters in paths.items()}


@lru_cache(maxsize=8)  # the same names come ten times a second
def disks(names: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """Return the whole physical disk for which each of the listed names counts, without those that do not count.

    >>> disks((b"sda", b"sda1", b"nvme0n1", b"nvme0n1p2", b"nvme0c1n1", b"dm-0", b"xvdb1"))
    {b'sda': b'sda', b'nvme0n1': b'nvme0n1', b'xvdb1': b'xvdb1', b'nvme0c1n1': b'nvme0n1'}
    """
    listed = frozenset(names)
    whole = {name: name for name in names if not _STACKED.match(name) and not _is_partition(name, listed)}
    return whole | {name: path[1] + path[2] for name in names if (path := _NVME_PATH.fullmatch(name))}


def _is_partition(name: bytes, listed: frozenset[bytes]) -> bool:
    stem = name.rstrip(b"0123456789")
    if stem == name:
        return False
    return stem in listed or (stem[-1:] == b"p" and stem[-2:-1].isdigit() and stem[:-1] in listed)


class Disk:
    """Utilisation of the busiest disk, and throughput of all disks."""

    name = "disk"
    metrics = ("disk_util", "disk_bytes")
    optional = False
    facts = NO_FACTS

    def __init__(self, proc: Path) -> None:
        self.path = proc / "diskstats"
        self._parse = cached(parse)
        self._before: dict[bytes, Counters] | None = None
        self._at = 0.0

    def measure(self, content: bytes, now: float) -> Values:
        """Compare with the previous reading; None for the first one, and for the first one of each new disk."""
        disks = self._parse(content)
        before, elapsed = self._before, now - self._at
        self._before, self._at = disks, now
        if not before:
            return (None, None)
        return usage(before, disks, elapsed)


def usage(
    before: dict[bytes, Counters], after: dict[bytes, Counters], elapsed: float
) -> tuple[float | None, float | None]:
    """Return the ratio 0..1 of the busiest disk and the bytes per second of all.

    Both are None if no disk is in both readings, or if a counter of any disk decreased.
    """
    busiest, moved = 0.0, 0.0
    both = before.keys() & after.keys()
    for name in both:
        old, new = before[name], after[name]
        active, flow = rate(old.active, new.active, elapsed), rate(old.moved, new.moved, elapsed)
        if active is None or flow is None:
            return (None, None)
        busiest, moved = max(busiest, active / 1e3), moved + flow
    return (min(1.0, busiest), moved) if both else (None, None)
