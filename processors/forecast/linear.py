"""The straight line of best fit through what was observed, carried on, as proposed for predictive autoscaling.

The proposal for a predictive horizontal pod autoscaler fits a line to past utilisation and reads it at now +
initialization time. With observations y at times t, and dt, dy their deviations from their means, its slope is
`sum(dt dy) / sum(dt dt)`, and the forecast `mean(y) + slope * (horizon - mean(t))`.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def forecast(seconds: Array, values: Array, horizon: Array) -> Array:
    """Return the line's value at each horizon.

    Arguments are those of `processors.forecast.model.Model`.

    Returns:
        (series,) amounts, at least 0. A single observation is carried on level; NaN where there is none.

    >>> forecast(np.array([-30.0, -15.0, 0.0]), np.array([[1.0, 2.0, 3.0]]), np.array([60.0]))
    array([7.])
    """
    is_known = np.isfinite(values)
    count = np.maximum(np.count_nonzero(is_known, axis=1), 1)
    mean_seconds = np.where(is_known, seconds, 0.0).sum(axis=1) / count
    mean = np.where(is_known, values, 0.0).sum(axis=1) / count
    away = np.where(is_known, seconds - mean_seconds[:, None], 0.0)
    rise = np.where(is_known, values - mean[:, None], 0.0)
    spread = (away**2).sum(axis=1)
    slope = np.divide((away * rise).sum(axis=1), spread, out=np.zeros_like(spread), where=spread > 0)
    ahead = np.maximum(mean + slope * (horizon - mean_seconds), 0.0)
    return np.where(is_known.any(axis=1), ahead, np.nan)
