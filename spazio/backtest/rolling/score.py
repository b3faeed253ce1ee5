"""How good predicted peaks were over many days: sums by day and node, from which every figure comes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import oracle
from spazio.backtest.rolling.recording import STEP_SECONDS, Nodes

Array = NDArray[np.float64]

_DAY_SECONDS = 86_400
_SEEN = 0.95  # share of a horizon's samples that must be there for it to count


class Curve(NamedTuple):
    """One predictor with all settings of one knob.

    Attributes:
        family: Name of the predictor.
        config: Its other settings, in words.
        knob: (knobs,) what was turned.
        judged: (days, nodes) predictions.
        violated: (knobs, days, nodes) those of them that usage rose above.
        saved: (knobs, days, nodes) sum of the shares of the node given back.
        moved: (knobs, days, nodes) sum of the changes from one prediction to the next, shares of the node.
        draws: How often the machines of the recording were drawn.
    """

    family: str
    config: str
    knob: Array
    judged: Array
    violated: Array
    saved: Array
    moved: Array
    draws: int = 1


def future(nodes: Nodes, horizon_seconds: int) -> Array:
    """Return the highest usage within the horizon (steps, nodes), of all times; NaN where it was not seen whole."""
    steps = (nodes.second - nodes.second[0]) // STEP_SECONDS
    horizon = horizon_seconds // STEP_SECONDS
    usage = np.full((int(steps[-1]) + 1 + horizon, nodes.usage.shape[1]), np.nan)
    usage[steps] = nodes.usage
    seen = np.cumsum(~np.isnan(usage), axis=0)
    share = (seen[steps + horizon] - seen[steps]) / horizon
    ended = steps + horizon <= steps[-1]
    best = oracle.peak(usage.T, horizon=horizon).T[steps]
    observed = ended[:, None] & (share >= _SEEN) & ~np.isnan(nodes.usage)
    return np.where(observed, best, np.nan)


def score(family: str, config: str, knob: Array, peaks: Array, nodes: Nodes, best: Array) -> Curve:
    """Judge predicted peaks.

    Args:
        family: Name of the predictor.
        config: Its other settings.
        knob: (knobs,).
        peaks: (knobs, steps, nodes) shares of the node; NaN and above 1 count as 1.
        nodes: What was recorded.
        best: (steps, nodes) of `future`.
    """
    shown = np.where(np.isnan(peaks), 1.0, np.minimum(peaks, 1.0))
    judged = ~np.isnan(best)
    day = nodes.second // _DAY_SECONDS
    starts = np.flatnonzero(np.diff(day, prepend=day[0] - 1))

    def daily(values: Array) -> Array:
        sums: Array = np.add.reduceat(np.where(judged, values, 0.0), starts, axis=-2)
        return sums

    moved = np.abs(np.diff(shown, axis=1, prepend=shown[:, :1]))
    count = daily(np.ones_like(best))
    above = np.where(judged, shown < best, False).astype(np.float64)
    return Curve(family, config, knob, count, daily(above), daily(1.0 - shown), daily(moved), nodes.draws)


def rates(curve: Curve, weight: Array | None = None) -> tuple[Array, Array]:
    """Return the shares (knobs,) of violations and of savings; with `weight` (..., days, nodes) it is (..., knobs)."""
    weights = np.ones_like(curve.judged) if weight is None else weight
    count = np.sum(weights * curve.judged, axis=(-2, -1))[..., None]
    count = np.where(count > 0, count, np.nan)  # a resample may consist of nodes and days without a prediction
    violated, saved = (np.einsum("...dn,kdn->...k", weights, part) for part in (curve.violated, curve.saved))
    return violated / count, saved / count


def savings_at(curve: Curve, violation: float, weight: Array | None = None) -> Array:
    """Return the savings (...) at a share of violations, between the two settings beside it.

    NaN: no setting violates so little. `weight` is that of `rates`.
    """
    seen, saved = rates(curve, weight)
    flat = [
        _between(rate, share, violation)
        for rate, share in zip(seen.reshape(-1, seen.shape[-1]), saved.reshape(-1, saved.shape[-1]), strict=True)
    ]
    savings: Array = np.array(flat).reshape(seen.shape[:-1])
    return savings


def _between(seen: Array, saved: Array, violation: float) -> float:
    """Return the savings at a share of violations: of the settings that violate no more, the best, and the next one."""
    order = np.lexsort((saved, seen))
    seen, saved = seen[order], np.maximum.accumulate(saved[order])
    return float(np.interp(violation, seen, saved)) if seen[0] <= violation else float("nan")


def tenths(curve: Curve, number: int) -> Array:
    """Return the shares of violations (tenths,) of each tenth of the nodes, from the fewest to the most.

    With fewer than ten nodes each is a part of its own.
    """
    count = curve.judged.sum(axis=0)
    of_node = np.sort(curve.violated[number].sum(axis=0)[count > 0] / count[count > 0])
    parts = min(10, len(of_node))
    return np.array([part.mean() for part in np.array_split(of_node, parts)]) if parts else np.zeros(0)
