"""Cost of decayed histograms: one sample and two percentiles of cpu and of memory, for many models at once.

The same run measures the direct form: one object with a numpy array for each histogram, in a loop. Both forms must give
the same percentiles.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from processors.prediction.histogram import bucket, histogram, sparse
from processors.prediction.histogram.bucket import Options
from processors.rows import table

Array = NDArray[np.float64]

_RESOURCES = (
    (bucket.KOORDINATOR_CPU, bucket.KOORDINATOR_CPU_HALF_LIFE_SECONDS, 1.0),
    (bucket.KOORDINATOR_MEMORY, bucket.KOORDINATOR_MEMORY_HALF_LIFE_SECONDS, float(1 << 30)),
)
_FRACTIONS = (0.95, 0.98)
_BEGAN = 1_700_000_000


class LoopHistogram:
    """A histogram of one model and resource."""

    def __init__(self, options: Options, half_life: float) -> None:
        self.options, self.half_life = options, half_life
        self.weights = np.zeros(options.count)
        self.total = 0.0
        self.reference = math.nan

    def add(self, value: float, at: float) -> None:
        """Add a sample."""
        if math.isnan(self.reference):
            self.reference = round(at / self.half_life) * self.half_life
        factor = 2.0 ** ((at - self.reference) / self.half_life)
        ratio, first = self.options.ratio, self.options.first
        index = 0 if value < first else int(math.log(value * (ratio - 1.0) / first + 1.0) / math.log(ratio))
        self.weights[min(index, self.options.count - 1)] += factor
        self.total += factor

    def percentile(self, fraction: float) -> float:
        """Return a percentile."""
        index = int(np.searchsorted(np.cumsum(self.weights), fraction * self.total))
        return float(self.options.starts[min(index + 1, self.options.count - 1)])


def usage(size: Array, minute: int, rng: np.random.Generator) -> Array:
    """Return the usage (models,) in a minute for sizes (models,), with a daily wave."""
    wave = 1.5 + np.sin(2.0 * math.pi * minute / 1440.0)
    values: Array = size * (wave + rng.random(len(size)))
    return values


def best(work: Callable[[], object], runs: int) -> float:
    """Return the CPU seconds of the fastest run."""
    took = []
    for _ in range(runs):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def measure(models: int, *, days: int = 3, step: int = 30, runs: int = 5) -> dict[str, float]:
    """Fill histograms over days, then measure one more sample and the percentiles; return seconds and bytes."""
    rng = np.random.default_rng(1)
    size = rng.uniform(0.5, 16.0, models)
    result = {"models": float(models), "update_seconds": 0.0, "percentile_seconds": 0.0, "loop_seconds": 0.0}
    result |= {"bytes_a_model": 0.0, "dumped_bytes_a_model": 0.0}
    for options, half_life, unit in _RESOURCES:
        state = histogram.init(models, options)
        histograms = [LoopHistogram(options, half_life) for _ in range(models)]
        for minute in range(0, days * 1440, step):
            values, at = usage(size, minute, rng) * unit, _BEGAN + 60.0 * minute
            state = histogram.add(state, values, 1.0, at, options=options, half_life_seconds=half_life)
            _add_each(histograms, values, at)
        at = _BEGAN + 86400.0 * days
        state = _timed(result, runs, state, histograms, values, at, options, half_life)
        result["bytes_a_model"] += sum(part.nbytes for part in table.flatten(state).values()) / models
        result["dumped_bytes_a_model"] += sum(part.nbytes for part in sparse.dump(state, options).values()) / models
    result["seconds"] = result["update_seconds"] + result["percentile_seconds"]
    return result | {"times_faster": result["loop_seconds"] / result["seconds"]}


def _timed(
    result: dict[str, float],
    runs: int,
    state: histogram.State,
    histograms: list[LoopHistogram],
    values: Array,
    at: float,
    options: Options,
    half_life: float,
) -> histogram.State:
    adding = partial(histogram.add, state, values, 1.0, at, options=options, half_life_seconds=half_life)
    added = adding()
    reading = partial(histogram.percentile, added, _FRACTIONS, options=options)
    result["update_seconds"] += best(adding, runs)
    result["percentile_seconds"] += best(reading, runs)
    result["loop_seconds"] += best(partial(_add_each, histograms, values, at), 1) + best(
        partial(_read_each, histograms), runs
    )
    if not np.array_equal(_read_each(histograms), reading()):
        raise AssertionError("the loop reads other percentiles")
    return added


def _add_each(histograms: list[LoopHistogram], values: Array, at: float) -> None:
    for each, value in zip(histograms, values.tolist(), strict=True):
        each.add(value, at)


def _read_each(histograms: list[LoopHistogram]) -> Array:
    return np.array([[each.percentile(fraction) for fraction in _FRACTIONS] for each in histograms])


if __name__ == "__main__":
    measured = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
    print(json.dumps({name: round(value, 5) for name, value in measured.items()}, indent=2))
