"""What a pod takes: `least_squares` and the assumption of `global_model`, for one node."""

import math
from dataclasses import dataclass

from benchmarks.peers.written.series import FEATURES
from schemas.messages.telemetry import SampleBlock
from schemas.sections.estimation import Estimate

_NEWS, _QUIET, _FLOOR, _SMALL_COST = 0.05, 1e-8, 1e-9, 1e-3


@dataclass(slots=True)
class Evidence:
    """State of `least_squares` for one feature; what features share is in `Costs`."""

    usage: float = 0.0
    products: float = 0.0
    noise: float = 0.0
    baseline: float = math.nan


class Costs:
    """What is known of the cost of a pod, in shares of the machine.

    Attributes:
        evidence: By feature.
    """

    def __init__(self, estimate: Estimate) -> None:
        """Start without any block."""
        self._estimate = estimate
        self.evidence = [Evidence() for _ in FEATURES]
        self._sizes: tuple[float, float] | None = None
        self._weight = self._mean_pods = self._squares = self._noise_weight = 0.0

    def resize(self, sizes: tuple[float, float]) -> None:
        """Follow `least_squares.resized`; `sizes`: what a ratio of cpu and of memory is of now."""
        before, self._sizes = self._sizes or sizes, sizes
        for evidence, old, new in zip(self.evidence, before, sizes, strict=False):
            if old != new:
                factor = old / new
                evidence.usage *= factor
                evidence.products *= factor
                evidence.noise *= factor**2
                evidence.baseline *= factor

    def prior(self, read: SampleBlock, *, slow: bool) -> list[float]:
        """Follow `global_model`: the cost that is assumed of a pod, per feature."""
        cores = read.cpus * (self._estimate.slowdown if slow else 1.0)
        cpu, memory = self._estimate.pod_cores / cores, self._estimate.pod_memory_bytes / read.memory_bytes
        return [min(cpu, 1.0), min(memory, 1.0), _SMALL_COST, _SMALL_COST, _SMALL_COST]

    def of(self, index: int, prior: float) -> tuple[float, float, float]:
        """Follow `least_squares.cost`: value, variance, share of the prior."""
        evidence = self.evidence[index]
        noise = max(evidence.noise, _QUIET)
        slope = max(evidence.products / self._squares, 0.0) if self._squares > 0 else 0.0
        assumed = 1.0 / (self._estimate.prior_deviation * max(prior, slope)) ** 2
        total = self._squares / noise + assumed
        value = (max(evidence.products, 0.0) / noise + prior * assumed) / total
        return max(value, _FLOOR), 1.0 / total, assumed / total

    def learn(self, usage: list[float], pods: float, elapsed: float, value: list[float]) -> None:
        """Follow `least_squares.update`."""
        fade = math.exp(-elapsed / self._estimate.memory_seconds)
        first = self._weight == 0
        squares = self._squares
        self._weight = self._weight * fade + elapsed
        share = elapsed / self._weight if self._weight > 0 else 0.0
        step = pods - self._mean_pods
        kept = fade if abs(step) > _NEWS else 1.0
        gain = 0.0 if first else (1.0 - share) * elapsed
        self._squares = self._squares * kept + gain * step * step
        self._noise_weight = self._noise_weight * fade + elapsed
        part = elapsed / self._noise_weight if self._noise_weight > 0 else 0.0
        follow = 1.0 - math.exp(-elapsed / self._estimate.level_seconds)
        for evidence, used, cost in zip(self.evidence, usage, value, strict=True):
            if math.isnan(used):
                continue
            rise = used - evidence.usage
            line = max(evidence.products / squares, 0.0) if squares > 0 else cost
            residual = 0.0 if first else rise - line * step
            evidence.products = evidence.products * kept + gain * step * rise
            evidence.noise += part * (residual * residual - evidence.noise)
            evidence.usage += share * rise
            without = max(used - cost * pods, 0.0)
            has_baseline = not math.isnan(evidence.baseline)
            evidence.baseline = evidence.baseline + follow * (without - evidence.baseline) if has_baseline else without
        self._mean_pods += share * step
