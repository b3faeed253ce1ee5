"""A level and a trend that fades: Holt's method with damping, fitted by statsmodels.

A line through hours of load answers late to a turn and never ends its trend. Holt's method keeps a level and a trend
that both follow the newest observations; damping (Gardner and McKenzie 1985) lets the trend fade with the distance
ahead, so that a step does not become a slope for ever. How fast they follow is fitted to each series. Observations
are first averaged over blocks of an eighth of the horizon: then what is fitted is about errors over such times, not
over single observations, and a fit takes a few milliseconds. The library has one object per series, hence the loop.
"""

import warnings
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MODULE = "statsmodels.tsa.holtwinters"

_BLOCKS_AHEAD = 8
_LEAST_BLOCKS = 10  # the library's initial level and trend are a line through the first ten
_METHOD = "SLSQP"  # the default starts BLAS threads, which cost more than the fit


def forecast(seconds: Array, values: Array, horizon: Array) -> Array:
    """Return what level and trend come to at each horizon.

    Arguments are those of `processors.forecast.model.Model`.

    Returns:
        (series,) amounts, at least 0; NaN where there are fewer than ten observations to fit.

    Raises:
        ImportError: statsmodels is not installed.
    """
    period = float(np.diff(seconds).min()) if len(seconds) > 1 else 1.0
    amounts = [
        _ahead(seconds[is_known], row[is_known], float(distance), period)
        for row, is_known, distance in zip(values, np.isfinite(values), horizon, strict=True)
    ]
    return np.array(amounts, dtype=np.float64)


def blocks(seconds: Array, values: Array, width: float) -> tuple[Array, float]:
    """Average observations over blocks of time that end with the newest one.

    Args:
        seconds: (observations,) rising.
        values: (observations,) none missing.
        width: Seconds of a block.

    Returns:
        Means (blocks,), oldest first, an empty block on the line between its neighbours; and the mean time of the
        newest block, seconds.
    """
    index = np.floor((seconds[-1] - seconds) / width + 1e-9).astype(np.int64)
    count = np.bincount(index)
    filled = np.flatnonzero(count)
    means = np.bincount(index, values)[filled] / count[filled]
    every = np.interp(np.arange(len(count)), filled, means)
    return every[::-1], float(seconds[index == 0].mean())


def _ahead(seconds: Array, values: Array, horizon: float, period: float) -> float:
    if len(values) < _LEAST_BLOCKS:
        return np.nan
    averaged = min(horizon / _BLOCKS_AHEAD / period, len(values) / _LEAST_BLOCKS)
    width = period * max(1.0, np.floor(averaged))
    means, newest = blocks(seconds, values, width)
    scale = float(means.max())
    if scale <= 0:
        return 0.0
    steps = (horizon - newest) / width
    ahead = _fitted(means / scale, int(np.ceil(steps)))
    return max(0.0, float(np.interp(steps, np.arange(1, len(ahead) + 1), ahead))) * scale


def _fitted(values: Array, steps: int) -> Array:
    """Fit one series around 1, and carry it on so many steps (steps,)."""
    library = import_module(MODULE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that stopped early is still the best one found
        model = library.Holt(values, damped_trend=True, initialization_method="heuristic")
        fit = model.fit(use_brute=False, method=_METHOD)
    return np.asarray(fit.forecast(max(1, steps)), dtype=np.float64)
