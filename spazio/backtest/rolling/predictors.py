"""What each predictor says at every time of a recording, through the code that runs live."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction import moments
from processors.prediction.histogram import bucket, histogram
from processors.prediction.models import n_sigma
from processors.prediction.scoring import adaptive, calibration, conformal
from processors.prediction.scoring.calibration import Calibration
from schemas.sections.prediction import Predict
from spazio.backtest.rolling.recording import Nodes
from spazio.backtest.rolling.score import Curve, score

Array = NDArray[np.float64]

OURS = "calibrated"
STATED = np.array([0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001])
SIGMAS = np.concatenate((np.arange(0.0, 6.0, 0.5), np.arange(6.0, 21.0, 2.0), np.geomspace(25.0, 1000.0, 12)))
MARGINS = np.array([-0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0])
RATES = np.arange(0.02, 1.001, 0.02)
_PERCENTILES = (0.9, 0.95, 0.98, 0.995, 1.0)
_HALF_LIVES = (1, 3, 6, 12, 24, 72)
_WARM_UPS = ((0, ""), (3, ", warm-up 3 h"))  # hours for which the peak of a new node is the whole node
_SLOTS = 8
_MILLICORES = 1000.0  # a node is taken to have a thousand cores, so that buckets are fine beside it


class Past(NamedTuple):
    """Usage before each time, faded with one half-life, shares of the node.

    Attributes:
        half_life_hours: Age at which a sample counts half.
        mean: (steps, nodes).
        deviation: (steps, nodes) standard deviation.
        percentiles: (percentiles, steps, nodes) of decayed histograms.
    """

    half_life_hours: int
    mean: Array
    deviation: Array
    percentiles: Array


def fresh(horizon_seconds: int) -> Calibration:
    """Return what ours has learned before anything was seen; each of its resources is one of `STATED`."""
    return Calibration(len(STATED), Predict(horizon_seconds=horizon_seconds))


def ours(nodes: Nodes, best: Array, horizon_seconds: int, learned: Calibration) -> Curve:
    """Score our predictor; the knob is the stated probability. `learned` goes on learning."""
    return score(OURS, "", STATED, _calibrated(nodes, horizon_seconds, learned), nodes, best)


def follow(nodes: Nodes) -> list[Past]:
    """Return what peers predict from; it does not depend on the horizon."""
    pasts = []
    for hours in _HALF_LIVES:
        mean, deviation = _moments(nodes, hours * 3600.0)
        pasts.append(Past(hours, mean, deviation, _percentiles(nodes, hours * 3600.0)))
    return pasts


def peers(nodes: Nodes, pasts: Sequence[Past], best: Array) -> Iterator[Curve]:
    """Score every peer with every configuration."""
    constant = np.broadcast_to(RATES[:, None, None], (len(RATES), *nodes.usage.shape)) * nodes.request
    yield score("Borg-default", "", RATES, constant, nodes, best)
    age = _age_hours(nodes)
    for past in pasts:
        config = f"half-life {past.half_life_hours} h"
        sigma = past.mean + SIGMAS[:, None, None] * past.deviation
        for warm_up, suffix in _WARM_UPS:
            yield score("N-sigma", config + suffix, SIGMAS, np.where(age < warm_up, 1.0, sigma), nodes, best)
        for share, part in zip(_PERCENTILES, past.percentiles, strict=True):
            margin, name = (1.0 + MARGINS[:, None, None]) * part, f"percentile {100 * share:g}, {config}"
            for warm_up, suffix in _WARM_UPS:
                yield score("Koordinator", name + suffix, MARGINS, np.where(age < warm_up, 1.0, margin), nodes, best)


def _calibrated(nodes: Nodes, horizon_seconds: int, learned: Calibration) -> Array:
    """Return the peaks (stated, steps, nodes) that are in force after each step."""
    params = calibration.params(Predict(horizon_seconds=horizon_seconds), _SLOTS)
    count, stated = nodes.usage.shape[1], len(STATED)
    followed, state = conformal.init(count, stated, slots=_SLOTS), adaptive.init(count, stated, slots=_SLOTS)
    peaks = np.empty((stated, *nodes.usage.shape))
    for number, (second, usage) in enumerate(zip(nodes.second.tolist(), nodes.usage, strict=True)):
        at_us = np.full(count, second * 10**6)
        used = np.repeat(usage[:, None], stated, axis=1)
        followed, state, learned.today = adaptive.update(
            followed, state, learned.today, used, at_us, in_force=learned.in_force, params=params
        )
        learned.enforce(second, STATED)
        peaks[:, number] = conformal.upper(adaptive.spread(followed, state, learned.in_force, params=params)).T
    return peaks


def _age_hours(nodes: Nodes) -> Array:
    """Return how long each node has been seen (steps, nodes); NaN before its first sample."""
    is_seen = ~np.isnan(nodes.usage)
    first = nodes.second[is_seen.argmax(axis=0)]
    age: Array = np.where(np.logical_or.accumulate(is_seen), (nodes.second[:, None] - first) / 3600.0, np.nan)
    return age


def _moments(nodes: Nodes, half_life_seconds: float) -> tuple[Array, Array]:
    mean, deviation = np.empty_like(nodes.usage), np.empty_like(nodes.usage)
    state = moments.init(nodes.usage.shape[1], 1)
    for number, (second, usage) in enumerate(zip(nodes.second.tolist(), nodes.usage, strict=True)):
        at_us = np.full(len(usage), second * 10**6)
        state = moments.update(state, usage[:, None], at_us, half_life_seconds=half_life_seconds)
        mean[number] = n_sigma.peak(state, n=0.0)[:, 0]
        deviation[number] = moments.deviation(state)[:, 0]
    return mean, deviation


def _percentiles(nodes: Nodes, half_life_seconds: float) -> Array:
    """Return percentiles (percentiles, steps, nodes) of decayed histograms, as Koordinator keeps them."""
    options = bucket.KOORDINATOR_CPU
    percentiles = np.empty((len(_PERCENTILES), *nodes.usage.shape))
    state = histogram.init(nodes.usage.shape[1], options)
    for number, (second, usage) in enumerate(zip(nodes.second.tolist(), nodes.usage, strict=True)):
        seconds = np.full(len(usage), float(second))
        state = histogram.add(
            state, _MILLICORES * usage, 1.0, seconds, options=options, half_life_seconds=half_life_seconds
        )
        percentiles[:, number] = histogram.percentile(state, _PERCENTILES, options=options).T / _MILLICORES
    return percentiles
