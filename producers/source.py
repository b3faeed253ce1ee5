"""What a source is, how it reads a file of the kernel, and how one that fails is kept from harming the others.

Each source reads one file of `/proc` ten times a second, so the cost of a read is the cost of the agent. A file is
therefore opened once and read again from its start, which makes the kernel write it afresh at a quarter of the price
of opening it. Taking what the kernel says and measuring by it are apart: at a tick, with cold caches, only the bytes
are taken; those of a whole second are parsed in one go, at a quarter of the cost. `parse` of each source is a pure
function.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from prometheus_client import Counter

log = logging.getLogger(__name__)

FAILURES = Counter("spazio_source_failures_total", "reads of a source that failed", ["source"])
NO_FACTS: Mapping[str, int] = MappingProxyType({})

Parsed = TypeVar("Parsed")

# The kernel hands out a file of many records a page at a time and stops before the record that no longer fits, so
# a read may be short without being the end; no record of the files read here is as long as 1024 bytes.
_SURELY_WHOLE = 4096 - 1024


class Source(Protocol):
    """One thing to measure."""

    @property
    def name(self) -> str:
        """Name in logs and counters."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Columns that `read` gives, in this order; names of `schemas.metric`."""

    @property
    def facts(self) -> Mapping[str, int]:
        """Fields of a block, other than columns, that the last reads told: `cpus`, `memory_bytes`."""

    def take(self, now: float) -> bytes:
        """Return what there is to know at this moment, unparsed; nothing where the kernel does not offer it.

        Args:
            now: CLOCK_MONOTONIC in seconds.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file was cut off.
        """

    def measure(self, taken: bytes, now: float) -> tuple[float | None, ...]:
        """Turn what was taken into one value for each metric, in its unit.

        Args:
            taken: What `take` returned; in the order of time, and each once.
            now: The moment that `take` was given. Rates are over the time since the one before.

        Returns:
            None where there is nothing to know (yet).

        Raises:
            ValueError: The bytes are not what they should be; also LookupError.
        """


def read(source: Source, now: float) -> tuple[float | None, ...]:
    """Take and measure at once."""
    return source.measure(source.take(now), now)


class KernelFile:
    """A file of the kernel, read again and again from its start through one kept descriptor."""

    __slots__ = ("_descriptor", "_path", "_size")

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._descriptor = -1
        self._size = 4096

    def take(self, _now: float) -> bytes:
        """Return the whole file as it is now, as a source does; a descriptor that has gone stale is opened again, once.

        Raises:
            OSError: It cannot be opened or read.
            ValueError: It does not end with a line, so it was cut off.
        """
        try:
            content = os.pread(self._descriptor, self._size, 0)
        except OSError:  # nothing open yet, or gone: opening it says which
            content = b""
        if not content:
            self.close()
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            content = os.pread(self._descriptor, self._size, 0)
        if len(content) >= _SURELY_WHOLE:
            content = self._rest(content)
        if content and not content.endswith(b"\n"):
            raise ValueError(f"{self._path} is cut off after {len(content)} bytes")
        return content

    def _rest(self, content: bytes) -> bytes:
        parts, offset = [content], len(content)
        while part := os.pread(self._descriptor, self._size, offset):
            parts.append(part)
            offset += len(part)
        while self._size <= offset:
            self._size *= 2
        return b"".join(parts)

    def close(self) -> None:
        """Give the descriptor back; the next read opens the file again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class Guarded:
    """A source that never raises: a failure is None for each metric, counted, and said when it begins and ends."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._take = source.take
        self._nothing = (None,) * len(source.metrics)
        self._failures = FAILURES.labels(source.name)
        self._failing = False
        self.name = source.name
        self.metrics = source.metrics

    @property
    def facts(self) -> Mapping[str, int]:
        """Facts of the source."""
        return self._source.facts

    def take(self, now: float) -> bytes | None:
        """Take, as `Source.take`; None if that failed."""
        try:
            return self._take(now)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one source, the others are measured
            self._fail(error)
            return None

    def measure(self, taken: bytes | None, now: float) -> tuple[float | None, ...]:
        """Measure, as `Source.measure`; nothing is known where taking or measuring failed."""
        if taken is None:
            return self._nothing
        try:
            values = self._checked(taken, now)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one source, the others are measured
            self._fail(error)
            return self._nothing
        if self._failing:
            self._failing = False
            log.info("source.recovered", extra={"source": self.name})
        return values

    def _checked(self, taken: bytes, now: float) -> tuple[float | None, ...]:
        values = self._source.measure(taken, now)
        if len(values) != len(self._nothing):
            raise ValueError(f"{len(values)} values for {len(self._nothing)} metrics")
        return values

    def _fail(self, error: Exception) -> None:
        self._failures.inc()
        if not self._failing:
            self._failing = True
            log.warning("source.failed", extra={"source": self.name, "reason": repr(error)})


def remembered(parse: Callable[[bytes], Parsed]) -> Callable[[bytes], Parsed]:
    """Return a `parse` that does not look at the same bytes twice: counters of an idle machine mostly stand still."""
    last = b""
    result: Parsed | None = None

    def again(content: bytes) -> Parsed:
        nonlocal last, result
        if result is None or content != last:
            result, last = parse(content), content
        return result

    return again


def rate(before: int, after: int, elapsed: float) -> float | None:
    """Return how fast a counter grew, per second.

    None where the counter went backwards (it was reset, so its growth is not known) or no time has passed.

    >>> rate(100, 150, 0.5), rate(150, 100, 0.5)
    (100.0, None)
    """
    return (after - before) / elapsed if after >= before and elapsed > 0 else None


def clip(ratio: float) -> float:
    """Return the ratio brought into 0..1.

    >>> clip(1.02), clip(-0.1)
    (1.0, 0.0)
    """
    return min(1.0, max(0.0, ratio))
