"""Memory utilisation, from `/proc/meminfo`.

`memory_util` is 1 - MemAvailable / MemTotal: the kernel's own estimate of the memory that it can still allocate
without swapping. `memory_used` is the older 1 - (MemFree + Buffers + Cached) / MemTotal, kept for comparison: Cached
includes tmpfs, which cannot be reclaimed, and excludes reclaimable slab.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from producers.source import NO_FACTS, Values, cached, clip

_LINES = 5


class Reading(NamedTuple):
    """One reading of `/proc/meminfo`, in bytes; `available` is None on kernels before 3.14."""

    total: int
    available: int | None
    cached: int


def parse(content: bytes) -> Reading:
    """Read the first five lines, which have all that is needed (proc_meminfo(5)).

    Raises:
        ValueError: A field is not a number, or the sizes are those of no machine.
        LookupError: A line is missing.
    """
    words = content.split(None, 3 * _LINES)
    sizes = dict(zip(words[0 : 3 * _LINES : 3], words[1 : 3 * _LINES : 3], strict=False))
    total = int(sizes[b"MemTotal:"]) << 10
    if total <= 0:
        raise ValueError("MemTotal is 0")
    available = sizes.get(b"MemAvailable:")
    free = None if available is None else int(available) << 10
    cached = (int(sizes[b"MemFree:"]) + int(sizes[b"Buffers:"]) + int(sizes[b"Cached:"])) << 10
    if max(total, abs(free or 0), abs(cached)) >= 1 << 64:
        raise ValueError("a size is that of no machine")
    return Reading(total, free, cached)


def working_set(content: bytes) -> int | None:
    """Return the bytes of memory in use, as the kubelet counts them: all but free memory and inactive file pages.

    None: the kernel does not say it. Source: cAdvisor, whose working set of the root cgroup the kubelet evicts by.

    Raises:
        ValueError: A field is not a number.
    """
    sizes = [_size(content, name) for name in (b"MemTotal:", b"MemFree:", b"Inactive(file):")]
    total, *unused = (size for size in sizes if size is not None)
    return max(0, total - sum(unused)) if len(unused) == len(sizes) - 1 else None


def _size(content: bytes, name: bytes) -> int | None:
    begin = content.find(name)
    return None if begin < 0 else int(content[begin + len(name) :].split(None, 1)[0]) << 10


class Memory:
    """Memory utilisation, in two definitions."""

    name = "memory"
    metrics = ("memory_util", "memory_used")
    optional = False

    def __init__(self, proc: Path) -> None:
        self.path = proc / "meminfo"
        self._parse = cached(parse)
        self.facts: Mapping[str, int] = NO_FACTS

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - levels need no time
        """Divide the levels by the total."""
        total, available, cached = self._parse(content)
        if self.facts.get("memory_bytes") != total:
            self.facts = {"memory_bytes": total}
        return (None if available is None else clip(1 - available / total), clip(1 - cached / total))
