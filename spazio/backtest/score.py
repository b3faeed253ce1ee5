"""How good predicted peaks were on one day: each setting of a predictor's knob, node by node."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import oracle

Array = NDArray[np.float64]


class Curve(NamedTuple):
    """One predictor with all settings of one knob, on one day or several.

    Attributes:
        family: Name of the predictor.
        config: Its other settings, in words.
        knob: (knobs,) what was turned.
        violation: (knobs, nodes) share of times at which usage rises above the prediction.
        severity: (knobs, nodes) mean share of the peak that was not predicted.
        savings: (knobs, nodes) mean share of the limit given back.
    """

    family: str
    config: str
    knob: Array
    violation: Array
    severity: Array
    savings: Array


class Position(NamedTuple):
    """A setting of a curve's knob: `part` of the way from setting number `low` to number `high`."""

    low: int
    high: int
    part: float


class Point(NamedTuple):
    """A curve at one place: the knob, and figures per node (nodes,)."""

    knob: float
    violation: Array
    severity: Array
    savings: Array


def score(family: str, configs: Sequence[tuple[str, int]], knob: Array, peaks: Array, usage: Array) -> list[Curve]:
    """Judge predicted peaks by what usage did in the rest of the day; the last sample has no future and is left out.

    Args:
        family: Name of the predictor.
        configs: Name and warm-up of each: samples from which on a task is warm, rising; before, the limit counts.
        knob: (knobs,) what was turned.
        peaks: (knobs, nodes, samples) shares of the limit; above 1 counts as 1.
        usage: (nodes, samples) shares of the limit.
    """
    best = oracle.peak(usage, horizon=usage.shape[1])[:, :-1]
    shown = np.minimum(peaks[..., :-1], 1.0)
    starts = [warm - 1 for _, warm in configs]

    def from_each_start(values: Array) -> Array:
        sums = np.add.reduceat(values, starts, axis=-1)[..., ::-1]
        rest: Array = np.cumsum(sums, axis=-1)[..., ::-1] / best.shape[1]
        return rest

    violated = from_each_start((shown < best).astype(np.float64))
    severe = from_each_start(np.maximum(best - shown, 0.0) / np.where(best > 0, best, 1.0))
    saved = from_each_start(1.0 - shown)
    return [
        Curve(family, name, knob, violated[..., number], severe[..., number], saved[..., number])
        for number, (name, _) in enumerate(configs)
    ]


def join(curves: Sequence[Curve]) -> Curve:
    """Return the curve of several days' nodes together; all days must be of one predictor."""
    wide = (np.concatenate([curve[part] for curve in curves], axis=1) for part in range(3, 6))
    return Curve(curves[0].family, curves[0].config, curves[0].knob, *wide)


def locate(curve: Curve, savings: float) -> Position | None:
    """Return where the mean savings are as wanted; None where the curve never saves so much.

    A predictor whose most careful setting saves more than is wanted is taken there.
    """
    mean = curve.savings.mean(axis=1)
    order = np.argsort(mean, kind="stable")
    mean = mean[order]
    if savings > mean[-1]:
        return None
    right = int(np.searchsorted(mean, savings))
    if right == 0:
        return Position(int(order[0]), int(order[0]), 0.0)
    part = (savings - mean[right - 1]) / (mean[right] - mean[right - 1])
    return Position(int(order[right - 1]), int(order[right]), float(part))


def point(curve: Curve, where: Position) -> Point:
    """Return the figures at a place, interpolated between the two settings."""

    def between(values: Array) -> Array:
        blend: Array = values[where.low] + where.part * (values[where.high] - values[where.low])
        return blend

    figures = (between(part) for part in (curve.violation, curve.severity, curve.savings))
    return Point(float(between(curve.knob)), *figures)


def at(curve: Curve, savings: float) -> Point | None:
    """Return the figures where the mean savings are as wanted; None where the curve never saves so much."""
    where = locate(curve, savings)
    return None if where is None else point(curve, where)
