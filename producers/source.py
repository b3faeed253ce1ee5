"""What a source is, and how one that fails is kept from harming the others.

Most sources name a file of `/proc` that is read for them at each tick. Reading and measuring are apart: at a tick,
with cold caches, only bytes are taken; those of a whole second are parsed in one go, at a quarter of the cost. A
source without such a file looks for itself, once a second. `parse` of each source is a pure function.
"""

import errno
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from prometheus_client import Counter

from producers.file import Content, KernelFile

log = logging.getLogger(__name__)

FAILURES = Counter("spazio_source_failures_total", "reads of a source that failed", ["source"])
NO_FACTS: Mapping[str, int] = MappingProxyType({})

Parsed = TypeVar("Parsed")
Values = tuple[float | None, ...]

_NOT_OFFERED = (errno.ENOENT, errno.EOPNOTSUPP)


class Source(Protocol):
    """One thing to measure."""

    @property
    def name(self) -> str:
        """Name in logs and counters."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Columns that `measure` gives, in this order; names of `schemas.metric`."""

    @property
    def path(self) -> Path | None:
        """The file to read at each tick; None for levels that move slowly, measured once a second from anything."""

    @property
    def optional(self) -> bool:
        """Whether a kernel may do without the file, so that its absence is no failure."""

    @property
    def facts(self) -> Mapping[str, int]:
        """Fields of a block, other than columns, that the last contents told: `cpus`, `memory_bytes`."""

    def measure(self, content: bytes, now: float) -> Values:
        """Return one value for each metric, in its unit.

        Args:
            content: What the file held, whole; in the order of time, and each once. Empty without a file.
            now: When it held that, as CLOCK_MONOTONIC in seconds. Rates are over the time since the one before.

        Returns:
            None where there is nothing to know (yet).

        Raises:
            ValueError: The bytes are not what they should be; also LookupError.
            OSError: What a source without a file looks at cannot be read.
        """


def read(source: Source, now: float) -> Values:
    """Read the file of a source and measure.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not what it should be; also LookupError.
    """
    return source.measure(b"" if source.path is None else whole(KernelFile(source.path).read()), now)


def whole(content: bytes) -> bytes:
    """Return the content of a file, which ends with a line unless it is empty.

    Raises:
        ValueError: It was cut off.
    """
    if content and not content.endswith(b"\n"):
        raise ValueError(f"cut off after {len(content)} bytes")
    return content


class Guarded:
    """A source that never raises: a failure is None for each metric, counted, and said when it begins and ends."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        self.metrics = source.metrics
        self._nothing: Values = (None,) * len(self.metrics)
        self._failures = FAILURES.labels(source.name)
        self._said = ""  # what is wrong since when it was logged

    @property
    def facts(self) -> Mapping[str, int]:
        """Facts of the source."""
        return self._source.facts

    def measure(self, content: Content, now: float) -> Values:
        """Measure, as `Source.measure`; nothing is known where reading or measuring failed."""
        if isinstance(content, OSError):
            return self._without(content)
        try:
            values = self._checked(content, now)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one source, the others are measured
            return self._without(error)
        if self._said:
            self._said = ""
            log.info("source.recovered", extra={"source": self._source.name})
        return values

    def _checked(self, content: bytes, now: float) -> Values:
        values = self._source.measure(whole(content), now)
        if len(values) != len(self._nothing):
            raise ValueError(f"{len(values)} values for {len(self._nothing)} metrics")
        return values

    def _without(self, error: Exception) -> Values:
        absent = self._source.optional and isinstance(error, OSError) and error.errno in _NOT_OFFERED
        if not absent:
            self._failures.inc()
        event = "source.absent" if absent else "source.failed"
        if self._said != event:
            self._said = event
            log.warning(event, extra={"source": self._source.name, "reason": repr(error)})
        return self._nothing


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
