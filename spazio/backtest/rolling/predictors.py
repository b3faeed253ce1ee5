"""What each predictor says at every time of a recording, through the code that runs live."""

from collections.abc import Iterator

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
SIGMAS = np.concatenate((np.arange(0.0, 6.0, 0.5), np.arange(6.0, 21.0, 2.0)))
MARGINS = np.array([-0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0])
RATES = np.arange(0.02, 1.001, 0.02)
_PERCENTILES = (0.9, 0.95, 0.98, 0.995)
_HALF_LIVES = (3, 12, 24)
_SLOTS = 8
_MILLICORES = 1000.0  # a node is taken to have a thousand cores, so that buckets are fine beside it


def ours(nodes: Nodes, best: Array, horizon_seconds: int) -> Curve:
    """Score our predictor; the knob is the stated probability."""
    peaks = np.stack([_calibrated(nodes, horizon_seconds, float(stated)) for stated in STATED])
    return score(OURS, "", STATED, peaks, nodes, best)


def peers(nodes: Nodes, best: Array) -> Iterator[Curve]:
    """Score every peer with every configuration."""
    constant = np.broadcast_to(RATES[:, None, None], (len(RATES), *nodes.usage.shape)) * nodes.request
    yield score("Borg-default", "", RATES, constant, nodes, best)
    for hours in _HALF_LIVES:
        mean, deviation = _moments(nodes, hours * 3600.0)
        sigma = mean + SIGMAS[:, None, None] * deviation
        yield score("N-sigma", f"half-life {hours} h", SIGMAS, sigma, nodes, best)
        percentiles = _percentiles(nodes, hours * 3600.0)
        for share, part in zip(_PERCENTILES, percentiles, strict=True):
            config = f"percentile {100 * share:g}, half-life {hours} h"
            yield score("Koordinator", config, MARGINS, (1.0 + MARGINS[:, None, None]) * part, nodes, best)


def _calibrated(nodes: Nodes, horizon_seconds: int, stated: float) -> Array:
    """Return the peaks (steps, nodes) that are in force after each step."""
    settings = Predict(horizon_seconds=horizon_seconds, violation=stated)
    params, learned = calibration.params(settings, _SLOTS), Calibration(1, settings)
    count = nodes.usage.shape[1]
    followed, state = conformal.init(count, 1, slots=_SLOTS), adaptive.init(count, 1, slots=_SLOTS)
    peaks = np.empty_like(nodes.usage)
    for number, (second, usage) in enumerate(zip(nodes.second.tolist(), nodes.usage, strict=True)):
        at_us = np.full(count, second * 10**6)
        followed, state, learned.today = adaptive.update(
            followed, state, learned.today, usage[:, None], at_us, in_force=learned.in_force, params=params
        )
        learned.enforce(second, stated)
        peaks[number] = conformal.upper(adaptive.spread(followed, state, learned.in_force, params=params))[:, 0]
    return peaks


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
