"""Our predictor on whole days: the same code that runs live, sample by sample, with every horizon cut at midnight."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.models import calibrated
from spazio.backtest import score, trace

Array = NDArray[np.float64]

FAMILY = "calibrated"
PARAMS = calibrated.Params(interval_seconds=trace.SAMPLE_SECONDS)
# Rare ones cannot be counted, only the assumed tail tells them; they reach the savings of the most careful peers.
_COUNTED = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005)
_RARE = (0.003, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, 1e-15, 1e-20, 1e-30, 1e-50, 1e-90)
PROBABILITIES = np.array(_COUNTED + _RARE)


class Day(NamedTuple):
    """What was followed on one day: `mean` and `scale` (nodes, samples), and what it teaches."""

    mean: Array
    scale: Array
    table: calibrated.Table


def follow(usage: Array) -> Day:
    """Run one day of nodes (nodes, samples), shares of the limit; nothing is known before it."""
    nodes, samples = usage.shape
    state = calibrated.init(nodes, 1, slots=samples)
    table = calibrated.empty(1)
    mean, scale = np.empty_like(usage), np.empty_like(usage)
    day = 86_400 * 10**6  # any midnight after the epoch
    for number in range(samples):
        at_us = np.full(nodes, day + number * trace.SAMPLE_SECONDS * 10**6, dtype=np.int64)
        state, table = calibrated.update(state, table, usage[:, number : number + 1], at_us, params=PARAMS)
        mean[:, number] = state.mean[:, 0]
        scale[:, number] = calibrated.scale(state, params=PARAMS)[:, 0]
    return Day(mean, scale, calibrated.close(state, table)[1])


def learn(days: Iterable[Day]) -> calibrated.Table:
    """Return what several days teach together."""
    return calibrated.Table(np.sum([day.table.counts for day in days], axis=0))


def curve(day: Day, table: calibrated.Table, usage: Array) -> score.Curve:
    """Score the predictor on a day with a table that was learned elsewhere; the knob is the stated probability."""
    at_us = np.arange(usage.shape[1], dtype=np.int64) * trace.SAMPLE_SECONDS * 10**6
    hours = calibrated.time_of_day(at_us, len(table.counts))
    multiples = np.stack([calibrated.quantile(table, float(wanted))[hours, 0] for wanted in PROBABILITIES])
    peaks = np.clip(day.mean + day.scale * multiples[:, None, :], 0.0, 1.0)
    return score.score(FAMILY, [("", 1)], PROBABILITIES, peaks, usage)[0]


def knob(probability: float) -> int:
    """Return the number of a stated probability among those that are scored."""
    return int(np.argmin(np.abs(PROBABILITIES - probability)))
