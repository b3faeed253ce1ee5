"""Our predictor on whole days: the same code that runs live, sample by sample, with every horizon cut at midnight."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction import moments
from processors.prediction.models import registry
from processors.prediction.models.protocol import Evidence, PeakModel, Pods
from processors.prediction.scoring import conformal, residuals
from processors.prediction.tier import group
from processors.rows import table as rows
from schemas.sections.prediction import Predict
from spazio.backtest import score, trace

Array = NDArray[np.float64]

FAMILY = "calibrated"
_CPU, _RESOURCES = 0, 2
PARAMS = conformal.Params(interval_seconds=trace.SAMPLE_SECONDS)
# Rare ones cannot be counted, only the assumed tail tells them; they reach the savings of the most careful peers.
_COUNTED = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005)
_RARE = (0.003, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12, 1e-15, 1e-20, 1e-30, 1e-50, 1e-90)
PROBABILITIES = np.array(_COUNTED + _RARE)


class Day(NamedTuple):
    """What was followed on one day.

    Attributes:
        mean: (nodes, samples) faded mean of usage, as a share of the limit.
        scale: (nodes, samples) scale of its residuals.
        moments: Mean and variance of usage, one row for each node and sample.
        table: What the day teaches.
    """

    mean: Array
    scale: Array
    moments: moments.State
    table: residuals.Table


def follow(usage: Array) -> Day:
    """Run one day of nodes (nodes, samples), shares of the limit; nothing is known before it."""
    nodes, samples = usage.shape
    state = conformal.init(nodes, 1, slots=samples)
    table = residuals.empty(1)
    mean, scale = np.empty_like(usage), np.empty_like(usage)
    seen, at_each = moments.init(nodes, 1), moments.init(usage.size, 1)
    half_life = Predict().half_life_cpu_seconds
    day = 86_400 * 10**6  # any midnight after the epoch
    for number in range(samples):
        at_us = np.full(nodes, day + number * trace.SAMPLE_SECONDS * 10**6, dtype=np.int64)
        state, table = conformal.update(state, table, usage[:, number : number + 1], at_us, params=PARAMS)
        mean[:, number] = state.mean[:, 0]
        scale[:, number] = conformal.scale(state, params=PARAMS)[:, 0]
        seen = moments.update(seen, usage[:, number : number + 1], at_us, half_life_seconds=half_life)
        rows.put(at_each, np.arange(nodes) * samples + number, seen)
    return Day(mean, scale, at_each, conformal.close(state, table)[1])


def learn(days: Iterable[Day]) -> residuals.Table:
    """Return what several days teach together."""
    return residuals.Table(np.sum([day.table.counts for day in days], axis=0))


def curve(day: Day, table: residuals.Table, usage: Array) -> score.Curve:
    """Score the predictor on a day with a table that was learned elsewhere; the knob is the stated probability."""
    peaks = np.stack([stated(day, table, float(wanted)) for wanted in PROBABILITIES])
    return score.score(FAMILY, [("", 1)], PROBABILITIES, peaks, usage)[0]


def stated(day: Day, table: residuals.Table, probability: float) -> Array:
    """Return the peaks (nodes, samples) that usage rises above with a stated probability, as shares of the limit."""
    at_us = np.arange(day.mean.shape[1], dtype=np.int64) * trace.SAMPLE_SECONDS * 10**6
    hours = residuals.time_of_day(at_us, len(table.counts))
    return predict(registry.MODELS[FAMILY], day, residuals.quantile(table, probability)[hours, 0])


def predict(model: PeakModel, day: Day, multiple: Array) -> Array:
    """Ask a peak model, as the live path does, at every time of a day.

    Args:
        model: One that predicts whole nodes from their own usage: a recording knows neither pods nor histograms.
        day: What was followed.
        multiple: (samples,) multiple of the scale that is in force.

    Returns:
        (nodes, samples) peaks as shares of the limit; NaN where the model does not predict.
    """
    evidence = _evidence(day, np.broadcast_to(multiple, day.mean.shape))
    peaks = model.peaks(evidence, Predict())
    return peaks[:, group.NODE, _CPU].reshape(day.mean.shape)


def _evidence(day: Day, multiple: Array) -> Evidence:
    """Return what is seen of each node at each time, as if each were a node of its own that has one core."""
    count = day.mean.size
    by_group = (count, group.COUNT, _RESOURCES)
    spread = np.full((3, *by_group), np.nan)
    spread[:, :, group.NODE, _CPU] = [part.ravel() for part in (day.mean, day.scale, multiple)]
    seen = moments.init(count * group.COUNT, _RESOURCES)
    whole = np.arange(count) * group.COUNT + group.NODE
    for part, of_node in zip(seen[:3], day.moments[:3], strict=True):
        part[whole, _CPU] = of_node[:, 0]
    no_pods = np.zeros((0, _RESOURCES))
    return Evidence(
        size=np.ones((count, _RESOURCES)),
        percentile=np.full(by_group, np.nan),
        moments=seen,
        spread=conformal.Spread(*spread),
        lists_pods=np.zeros(count, dtype=np.bool_),
        pods=Pods(np.zeros(0, dtype=np.intp), no_pods, no_pods, moments.init(0, _RESOURCES)),
    )


def knob(probability: float) -> int:
    """Return the number of a stated probability among those that are scored."""
    return int(np.argmin(np.abs(PROBABILITIES - probability)))
