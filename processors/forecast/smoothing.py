"""Exponential smoothing with and without a trend, weighed by how each has done on the series itself: the default.

Candidates are Holt's method with fixed parameters (level, trend, damping):

    l <- a y + (1 - a) (l + p b)      b <- c (l - l_old) + (1 - c) p b      ahead(k) = l + b (p + p^2 + ... + p^k)

With a = 1 and c = 0 that is the last value, with c = 0 simple exponential smoothing. Each is run over the observed
window, and what it would have forecast as far ahead as is asked for now is compared with what was observed then. The
forecast is the mean of the candidates, weighed by the inverse of the fourth power of that error, with a
handicap for all but the last value. On a level series
smoothing wins, on a random walk the last value, on a ramp the trend. Where the mean has done worse than the last value
alone, the last value is the forecast. There is nothing to fit, so a thousand series take milliseconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Level, trend, damping; the first is the last value.
_CANDIDATES = (
    (1.0, 0.0, 1.0),
    (0.7, 0.0, 1.0),
    (0.45, 0.0, 1.0),
    (0.25, 0.0, 1.0),
    (0.12, 0.0, 1.0),
    (0.05, 0.0, 1.0),
    (0.6, 0.4, 1.0),
    (0.3, 0.1, 1.0),
    (0.3, 0.1, 0.9),
    (0.12, 0.04, 1.0),
)
_POWER = 4.0
_LEAST_ERRORS = 3
# Errors of what is not the last value weigh more, since among several candidates one is good by chance.
_LEVEL_HANDICAP, _TREND_HANDICAP = 1.1, 1.3
_HANDICAPS = np.array(
    [_TREND_HANDICAP if beta else _LEVEL_HANDICAP if alpha < 1 else 1.0 for alpha, beta, _ in _CANDIDATES]
)
_EXACT = 1e-6  # errors below that share of the series' maximum count alike
_ROWS = 256  # worked on together; bounds memory


class _Run(NamedTuple):
    """Levels and trends (observations, series, candidates) after each observation."""

    level: Array
    trend: Array


def forecast(seconds: Array, values: Array, horizon: Array) -> Array:
    """Return the weighed forecast at each horizon.

    Arguments are those of `processors.forecast.model.Model`.

    Returns:
        (series,) amounts, at least 0; NaN where nothing was observed. Of a few observations it is the last one.

    >>> forecast(np.array([-45.0, -30.0, -15.0, 0.0]), np.array([[5.0, 5.0, 5.0, 5.0]]), np.array([60.0]))
    array([5.])
    """
    if not values.size:
        return np.full(len(values), np.nan)
    period = float(np.diff(seconds).min()) if len(seconds) > 1 else 1.0
    steps = np.maximum(1, np.rint(horizon / period)).astype(np.intp)
    parts = [
        _ahead(values[begin : begin + _ROWS], steps[begin : begin + _ROWS]) for begin in range(0, len(values), _ROWS)
    ]
    return np.concatenate(parts)


def _ahead(values: Array, steps: NDArray[np.intp]) -> Array:
    """Return forecasts (series,) so many steps (series,) ahead."""
    run = _run(values)
    reach = _reach(steps)
    now = np.maximum(run.level[-1] + run.trend[-1] * reach, 0.0)
    # Where a series is short, errors of fewer steps ahead must do. Others may reach further back.
    span = values.shape[1] - np.isfinite(values).argmax(axis=1)
    tried = np.clip(steps, 1, np.maximum(1, span // 2))
    made, truth = _replayed(run, values, tried)
    counted = np.isfinite(truth) & np.isfinite(made).all(axis=2)
    count = np.count_nonzero(counted, axis=0)
    errors = _mean_error(made, truth, counted, count)
    scale = np.maximum(np.nanmax(np.where(np.isfinite(values), values, 0.0), axis=1, initial=0.0), 1e-300)
    weights = (errors * _HANDICAPS / scale[:, None] + _EXACT) ** -_POWER
    weights /= weights.sum(axis=1, keepdims=True)
    mixed = (made * weights).sum(axis=2, keepdims=True)
    mixed_error = _mean_error(mixed, truth, counted, count)[:, 0]
    trusted = (count >= _LEAST_ERRORS) & (mixed_error <= errors[:, 0] + _EXACT * scale)
    return np.asarray(np.where(trusted, (now * weights).sum(axis=1), now[:, 0]))


def _run(values: Array) -> _Run:
    alpha, beta, phi = (np.array(column) for column in zip(*_CANDIDATES, strict=True))
    series, observations = values.shape
    level, trend = np.full((series, len(alpha)), np.nan), np.zeros((series, len(alpha)))
    levels, trends = np.empty((observations, *level.shape)), np.empty((observations, *level.shape))
    for index in range(observations):
        value = values[:, index, None]
        expected = np.where(np.isnan(level), value, level + phi * trend)
        after = np.where(np.isnan(value), expected, expected + alpha * (value - expected))
        rise = np.where(
            np.isnan(value) | np.isnan(level), phi * trend, beta * (after - level) + (1 - beta) * phi * trend
        )
        level, trend = after, rise
        levels[index], trends[index] = level, trend
    return _Run(levels, trends)


def _reach(steps: NDArray[np.intp]) -> Array:
    """Return p + p^2 + ... + p^k (series, candidates)."""
    phi = np.array([candidate[2] for candidate in _CANDIDATES])
    fading = np.where(phi < 1, phi, 0.5)
    damped = fading * (1 - fading ** steps[:, None]) / (1 - fading)
    reach: Array = np.where(phi < 1, damped, steps[:, None].astype(np.float64))
    return reach


def _replayed(run: _Run, values: Array, steps: NDArray[np.intp]) -> tuple[Array, Array]:
    """Return past forecasts (origins, series, candidates), and what was observed then (origins, series), or NaN."""
    made = np.maximum(run.level + run.trend * _reach(steps), 0.0)
    last = values.shape[1] - 1
    target = np.arange(values.shape[1])[:, None] + steps
    truth = values[np.arange(len(values)), np.minimum(target, last)]
    return made, np.asarray(np.where(target <= last, truth, np.nan))


def _mean_error(made: Array, truth: Array, counted: NDArray[np.bool_], count: NDArray[np.intp]) -> Array:
    errors = np.where(counted[:, :, None], np.abs(made - truth[:, :, None]), 0.0).sum(axis=0)
    mean: Array = errors / np.maximum(count, 1)[:, None]
    return mean
