"""Usage and tables for tests of calibrated peaks."""

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import residuals

Array = NDArray[np.float64]

DAY = 288


def noise(seed: int, samples: int, rows: int) -> Array:
    """Return usage with a turn of the day, its level and spread different from row to row."""
    rng = np.random.default_rng(seed)
    day = np.sin(np.arange(samples) * 2 * np.pi / DAY)[:, None, None]
    level, spread = rng.uniform(0.1, 0.3, rows)[:, None], rng.uniform(0.01, 0.05, rows)[:, None]
    return np.clip(level + 0.05 * day + spread * rng.standard_normal((samples, rows, 1)), 0.0, 1.0)


def taught(values: Array) -> residuals.Table:
    """Return a table of these z (values,) at the first time of day."""
    table = residuals.empty(1)
    counts = table.counts.copy()
    for bucket in np.floor((values + 5.0) / 0.1 + 1e-9).astype(int):
        counts[0, 0, bucket] += 1
    return residuals.Table(counts)
