"""Buckets of a histogram: which values fall together.

Exponential ones grow by a ratio, so that what is read from them is wrong by a share of the value and not by an
amount: with `first` the end of bucket 0, bucket n starts at `first * (ratio^n - 1) / (ratio - 1)`. Linear ones are
all of one size. The last bucket has no end; values beyond its start are in it. The formulas, and the order in which
they are computed, are those of the histograms of Koordinator and of the Vertical Pod Autoscaler (VPA), so that starts
and indices are the same numbers: a value that is exactly the start of an exponential bucket may fall into the one
before, as it does there.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from processors.prediction.histogram import elementary

Array = NDArray[np.float64]

_MANY = 65_535


@dataclass(frozen=True, eq=False)
class Options:
    """Buckets.

    Attributes:
        starts: (buckets,) lowest value of each bucket, in the unit of the values; ascending from 0.
        first: End of bucket 0.
        ratio: Size of a bucket by that of the one before; 1: linear.
        epsilon: Weight from which a bucket counts as not empty.
    """

    starts: Array
    first: float
    ratio: float
    epsilon: float

    @property
    def count(self) -> int:
        """Number of buckets."""
        return len(self.starts)

    @cached_property
    def ends(self) -> Array:
        """(buckets,) what a percentile that lies in each bucket reads: its end, of the last one its start."""
        return _kept(np.append(self.starts[1:], self.starts[-1]))

    @cached_property
    def _log_ratio(self) -> Array:
        return elementary.log(self.ratio)

    def find(self, values: ArrayLike) -> NDArray[np.intp]:
        """Return the bucket of each value, of any shape; below 0 counts as 0, beyond the last start as there.

        What is not a number has no bucket: it must be left out before, and is given bucket 0.
        """
        given = np.asarray(values, dtype=np.float64)
        inside = np.where(given >= self.first, np.minimum(given, 2.0 * self.starts[-1] + self.first), 0.0)
        if self.ratio == 1.0:
            position = inside / self.first
        else:
            position = elementary.log(inside * (self.ratio - 1.0) / self.first + 1.0) / self._log_ratio
        return np.minimum(position.astype(np.intp), self.count - 1)


def exponential(maximum: float, first: float, ratio: float, epsilon: float) -> Options:
    """Return buckets that grow by `ratio` until one starts at or beyond `maximum`.

    Raises:
        ValueError: A number is not between 1e-150 and 1e150, `ratio` is not above 1 and at most 10, or there would be
            more than 65,535 buckets.
    """
    _check(maximum=maximum, first=first, ratio=ratio, epsilon=epsilon)
    if not 1.0 < ratio <= 10.0:
        raise ValueError(f"ratio must be above 1 and at most 10, not {ratio}; buckets of one size are made by linear()")
    steps = elementary.log(maximum * (ratio - 1.0) / first + 1.0) / elementary.log(ratio)
    index = np.arange(_counted(float(steps)))
    grown: Array = elementary.power(ratio, index) - 1.0
    return Options(_kept(first * grown / (ratio - 1.0)), first, ratio, epsilon)


def linear(maximum: float, size: float, epsilon: float) -> Options:
    """Return buckets of one size, until one starts at or beyond `maximum`.

    Raises:
        ValueError: A number is not between 1e-150 and 1e150, or there would be more than 65,535 buckets.
    """
    _check(maximum=maximum, size=size, epsilon=epsilon)
    index = np.arange(_counted(maximum / size), dtype=np.float64)
    return Options(_kept(index * size), size, 1.0, epsilon)


def _check(**numbers: float) -> None:
    for name, number in numbers.items():
        if not 1e-150 < number < 1e150:
            raise ValueError(f"{name} must be a number above 1e-150 and below 1e150, not {number}")


def _counted(steps: float) -> int:
    if steps >= _MANY:
        raise ValueError(f"{steps:.3g} buckets are too many, at most {_MANY}: make the first bucket larger")
    return int(np.ceil(steps)) + 1


def _kept(starts: Array) -> Array:
    starts.flags.writeable = False
    return starts


# Koordinator: pkg/koordlet/prediction/predict_server.go and config.go. Cores and bytes; memory up to 2 TiB since its
# #2540 of July 2025, 2 GiB before. The epsilon is a thousandth of the smallest sample weight, 0.1.
KOORDINATOR_CPU = exponential(1024.0, 0.025, 1.05, 0.001 * 0.1)
KOORDINATOR_MEMORY = exponential(float(1 << 41), float(5 << 20), 1.05, 0.001 * 0.1)
KOORDINATOR_CPU_HALF_LIFE_SECONDS = 12 * 3600
KOORDINATOR_MEMORY_HALF_LIFE_SECONDS = 24 * 3600

# VPA: pkg/recommender/model/aggregations_config.go. Cores and bytes.
VPA_CPU = exponential(1000.0, 0.01, 1.05, 0.001 * 0.1)
VPA_MEMORY = exponential(1e12, 1e7, 1.05, 0.001 * 0.1)
VPA_CPU_HALF_LIFE_SECONDS = 24 * 3600
VPA_MEMORY_HALF_LIFE_SECONDS = 24 * 3600
