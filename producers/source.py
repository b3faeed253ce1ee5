"""The protocol of sources, and a guard that isolates failing sources from the others.

Most sources name a file of `/proc`, which the sampler reads for them at each tick. Reading and measuring are
separate: at a tick, with cold caches, the sampler only reads bytes; it parses those of a whole second in one go, at a
quarter of the cost. A source without such a file reads its own data once a second. `parse` of each source is a pure
function.
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
        """Columns of `measure`, in this order; names of `schemas.metric`."""

    @property
    def path(self) -> Path | None:
        """File to read at each tick; None: the source measures by itself, once a second."""

    @property
    def optional(self) -> bool:
        """Whether some kernels lack the file, so that its absence is not a failure."""

    @property
    def facts(self) -> Mapping[str, int]:
        """Fields of a block from the last content, other than columns: `cpus`, `memory_bytes`."""

    def measure(self, content: bytes, now: float) -> Values:
        """Return one value for each metric, in its unit.

        Args:
            content: Whole content of the file; contents come in order of time, each once. Empty without a file.
            now: Time of the content, as CLOCK_MONOTONIC in seconds. Rates are over the time since the previous one.

        Returns:
            None where a value is unknown (yet).

        Raises:
            ValueError: The content is malformed; also LookupError.
            OSError: A source without a file cannot read its data.
        """


def read(source: Source, now: float) -> Values:
    """Read the file of a source and measure.

    Raises:
        OSError: It cannot be read.
        ValueError: It is malformed; also LookupError.
    """
    return source.measure(b"" if source.path is None else whole(KernelFile(source.path).read()), now)


def whole(content: bytes) -> bytes:
    """Return the content of a file, which ends with a line unless it is empty.

    Raises:
        ValueError: It is cut off.
    """
    if content and not content.endswith(b"\n"):
        raise ValueError(f"cut off after {len(content)} bytes")
    return content


class Guarded:
    """A source that never raises: a failure gives None for each metric, is counted, and is logged at start and end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        self.metrics = source.metrics
        self._nothing: Values = (None,) * len(self.metrics)
        self._failures = FAILURES.labels(source.name)
        self._logged = ""  # event of the failure that lasts; empty: none

    @property
    def facts(self) -> Mapping[str, int]:
        """Facts of the source."""
        return self._source.facts

    def measure(self, content: Content, now: float) -> Values:
        """Measure, as `Source.measure`; None for each metric if reading or measuring failed."""
        if isinstance(content, OSError):
            return self._without(content)
        try:
            values = self._checked(content, now)
        except Exception as error:  # noqa: BLE001 - no failure of one source may affect the others
            return self._without(error)
        if self._logged:
            self._logged = ""
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
        if self._logged != event:
            self._logged = event
            log.warning(event, extra={"source": self._source.name, "reason": repr(error)})
        return self._nothing


def cached(parse: Callable[[bytes], Parsed]) -> Callable[[bytes], Parsed]:
    """Return a `parse` that caches its last result: counters of an idle machine rarely change."""
    last = b""
    result: Parsed | None = None

    def parse_once(content: bytes) -> Parsed:
        nonlocal last, result
        if result is None or content != last:
            result, last = parse(content), content
        return result

    return parse_once


def rate(before: int, after: int, elapsed: float) -> float | None:
    """Return the growth of a counter per second.

    None if the counter decreased (a reset, so its growth is unknown) or no time has passed.

    Raises:
        ValueError: It grew by more than any counter of a kernel holds.

    >>> rate(100, 150, 0.5), rate(150, 100, 0.5)
    (100.0, None)
    """
    try:
        return (after - before) / elapsed if after >= before and elapsed > 0 else None
    except OverflowError:
        raise ValueError("a counter has more digits than a kernel writes") from None


def clip(ratio: float) -> float:
    """Return the ratio, limited to 0..1.

    >>> clip(1.02), clip(-0.1)
    (1.0, 0.0)
    """
    return min(1.0, max(0.0, ratio))
