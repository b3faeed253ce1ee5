"""The level of what is taken of a resource, and of how much it may be: `level` and `limit` for one node."""

import math
from dataclasses import dataclass

from processors.estimation import level, slowdown
from schemas.messages.telemetry import SampleBlock
from schemas.settings import Settings


@dataclass(slots=True)
class Level:
    """State of `level` for one resource."""

    mean: float = math.nan
    variance: float = 0.0
    product: float = 0.0
    last: float = 0.0
    seconds: float = 0.0
    age: float = 0.0

    def update(self, value: float, seconds: float, *, hold: bool) -> None:
        """Follow `level.update`."""
        first = math.isnan(self.mean)
        live = not math.isnan(value) and (first or not hold)
        span = seconds if live else 0.0
        deviation = value - self.mean if live and not first else 0.0
        bound = 16.0 * (self.variance + 1e-4)
        step = deviation * deviation > bound and self.age >= 4.0
        followed = min(self.seconds, level.SLOW_SECONDS)
        gain = (
            -math.expm1(-span / level.FAST_SECONDS)
            if step
            else span / (followed + span)
            if followed + span > 0
            else 0.0
        )
        held = math.copysign(math.sqrt(bound), deviation) if step else deviation
        age = min(self.age, 60.0) + span
        part = span / age if live and not first and age > 0 else 0.0
        self.mean = value if live and first else self.mean + gain * deviation
        self.variance += part * (held * held - self.variance)
        self.product += part * (held * self.last - self.product)
        self.last = held if live else self.last
        self.seconds = 2.0 * span if step else self.seconds + span
        self.age = (min(self.age, 4.0) if step else self.age) + span

    @property
    def correlated(self) -> float:
        """Follow `level.correlated`."""
        correlation = min(max(self.product / self.variance if self.variance > 0 else 0.0, 0.0), 0.9)
        return (1 + correlation) / (1 - correlation)

    @property
    def doubt(self) -> float:
        """Follow `level.doubt`."""
        averaged = min(max(self.seconds, 1.0), level.SLOW_SECONDS)
        return min(self.correlated / averaged, 1.0) * self.variance


class Levels:
    """Levels of cpu and memory.

    Attributes:
        each: Of cpu and of memory.
        limits: What pods may take together, in cores and bytes.
        share: What the whole is of that.
    """

    def __init__(self, settings: Settings) -> None:
        """Start without any block."""
        self._settings = settings
        self.each = [Level(), Level()]
        self.limits, self.share = [0.0, 0.0], [1.0, 1.0]

    def update(
        self,
        read: SampleBlock,
        demanded: list[float],
        sizes: tuple[float, float],
        elapsed: float,
        *,
        moved: bool,
        settling: bool,
    ) -> None:
        """Follow `limit` and the levels of `chain`; `moved`: the number of pods has changed."""
        allowed = slowdown.share(self._settings.slowdown, read.cpus) * read.cpus
        evicted = min(self._settings.policy.eviction_bytes, read.memory_bytes / 2)
        self.limits = [allowed, read.memory_bytes - evicted]
        self.share = [size / limit for size, limit in zip(sizes, self.limits, strict=True)]
        for followed, used, share in zip(self.each, demanded, self.share, strict=False):
            if moved:
                followed.seconds = 0.0
            followed.update(used * share, elapsed, hold=settling)
        memory = demanded[1] * self.share[1]
        if not math.isnan(memory):
            self.each[1].mean = memory
