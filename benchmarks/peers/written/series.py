"""The newest samples: their medians, the features made of them, and what of a column is not missing."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FEATURES = ("cpu", "memory", "memory_pressure", "io_pressure", "disk")
COLUMNS = (
    "cpu_util", "memory_util", "memory_pressure", "io_pressure", "disk_util", "cpu_pressure", "cpu_throttled"
)  # fmt: skip
PRESSURE, _THROTTLED = 5, 6
WINDOW = 7
_TEN = np.arange(10)[:, None] + np.arange(WINDOW)


class Series:
    """The samples before a block that its medians reach back to."""

    def __init__(self, slowdown: float) -> None:
        """Start without any sample; `slowdown` is what CPU is divided by."""
        self._slowdown = slowdown
        self.clear()

    def clear(self) -> None:
        """Forget the samples, as after a gap."""
        self._window = np.full((WINDOW - 1, len(COLUMNS)), np.nan)

    def features(self, raw: Array) -> tuple[Array, bool]:
        """Follow `running_median` and `resource`: features (features, samples), and whether none is missing."""
        series = np.concatenate((self._window, raw))
        self._window = series[-WINDOW + 1 :]
        samples = len(raw)
        rows = np.arange(samples)[:, None] + np.arange(WINDOW) if samples != 10 else _TEN
        ordered = series.T[:, rows]
        ordered.sort(axis=2)
        quick = not np.isnan(ordered[:, :, -1]).any()  # what is missing is sorted last
        middle = ordered[:, :, WINDOW // 2] if quick else _median_of_known(ordered)
        pressure = middle[PRESSURE] * (1.0 - (middle[_THROTTLED] if quick else np.nan_to_num(middle[_THROTTLED])))
        blend = np.minimum(1.0, (middle[0] + pressure) / self._slowdown)
        middle[0] = blend if quick else np.where(np.isnan(pressure), middle[0], blend)
        return middle[: len(FEATURES)], quick


def mean(series: list[float]) -> float:
    """Return the mean of what is not missing."""
    finite = [value for value in series if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan


def newest(series: list[float]) -> float:
    """Return the last value that is not missing."""
    return next((value for value in reversed(series) if not math.isnan(value)), math.nan)


def _median_of_known(ordered: Array) -> Array:
    count = np.count_nonzero(~np.isnan(ordered), axis=2)[..., None]
    lower = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=2)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, WINDOW - 1), axis=2)
    median: Array = (0.5 * (lower + upper))[..., 0]
    return median
