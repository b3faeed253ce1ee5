"""Histograms filled with samples, and what is read of them."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from processors.prediction.histogram import bucket, histogram
from processors.prediction.histogram.bucket import Options

HOUR = 3600
BEGAN = 1_234_567_890
CORES = bucket.KOORDINATOR_CPU


def fill(
    samples: Sequence[tuple[float, float, float]], options: Options, half_life: float | None, *, compat: bool = False
) -> histogram.State:
    """Return a histogram (1 row) of (value, weight, seconds) one after another."""
    state = histogram.init(1, options)
    for value, weight, at in samples:
        given = np.array([value])
        state = histogram.add(state, given, weight, at, options=options, half_life_seconds=half_life, compat=compat)
    return state


def read(state: histogram.State, fractions: list[float], options: Options, *, compat: bool = False) -> list[float]:
    result: list[float] = histogram.percentile(state, fractions, options=options, compat=compat)[0].tolist()
    return result


def same(left: histogram.State, right: histogram.State) -> bool:
    parts = zip(left, right, strict=True)
    return all(np.array_equal(mine, yours, equal_nan=True) for mine, yours in parts)


samples = st.lists(st.tuples(st.floats(0, 500), st.floats(0.1, 10), st.integers(0, 40 * HOUR)), min_size=1, max_size=25)
