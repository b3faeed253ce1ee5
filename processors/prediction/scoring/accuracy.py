"""How right the predictions were, as a running metric: each is held against what usage then did.

Every prediction waits for its horizon to pass (`pending`), and is then judged by the definitions of `oracle`:
violated or not, by how much, and what it gave back. Sums per row and model fade with event time, so the figures are
those of the last half-lives. Rows do not touch each other: the result is the same however they are batched.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import oracle, pending

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Times = NDArray[np.int64]

_HORIZONS = 24.0


class Params(NamedTuple):
    """Which predictions are scored, and for how long they count.

    Attributes:
        horizon_seconds: How far the predictions look.
        interval_seconds: Time between two that are scored; slots times interval should reach the horizon.
        half_life_seconds: Age at which a score counts half.
        gap_seconds: A longer time without a sample drops what waits.
    """

    horizon_seconds: float
    interval_seconds: float
    half_life_seconds: float
    gap_seconds: float


class Sums(NamedTuple):
    """Faded sums over scored predictions, each (rows, models, resources).

    Attributes:
        weight: Predictions judged.
        violated: Those that usage rose above.
        severity: By how much of the peak, 0..1 each.
        savings: Share of the limit given back, 0..1 each.
    """

    weight: Array
    violated: Array
    severity: Array
    savings: Array


class State(NamedTuple):
    """Predictions that wait, and what came of those that did.

    Attributes:
        waiting: Times and highest usage since, in the resource's unit.
        peaks: (rows, models, resources, slots) what was predicted.
        limit: (rows, resources, slots) what was requested then.
        sums: Judged predictions.
        at_us: (rows,) time of the newest sample; 0: there was none.
    """

    waiting: pending.State
    peaks: Array
    limit: Array
    sums: Sums
    at_us: Times


class Summary(NamedTuple):
    """Figures per row, model and resource; NaN: nothing was judged.

    Attributes:
        violation_rate: Share of predictions that usage rose above, 0..1.
        severity: Mean share of the peak that was not predicted, 0..1.
        savings: Mean share of the limit given back, up to 1.
        weight: Predictions behind them, faded.
    """

    violation_rate: Array
    severity: Array
    savings: Array
    weight: Array


def params(horizon_seconds: float, waiting: int, gap_seconds: float) -> Params:
    """Return how predictions are scored of which so many wait for their horizon; figures are of the last 24."""
    return Params(horizon_seconds, horizon_seconds / waiting, _HORIZONS * horizon_seconds, gap_seconds)


def init(rows: int, models: int, resources: int, slots: int) -> State:
    """Return the state before any sample."""
    wide = (rows, models, resources)
    return State(
        waiting=pending.init(rows, resources, slots),
        peaks=np.full((*wide, slots), np.nan),
        limit=np.full((rows, resources, slots), np.nan),
        sums=Sums(*(np.zeros(wide) for _ in Sums._fields)),
        at_us=np.zeros(rows, dtype=np.int64),
    )


def update(state: State, usage: Array, peaks: Array, limit: Array, at_us: Times, *, params: Params) -> State:
    """Take in one sample of each row, score what is due and let the new predictions wait.

    Args:
        state: What the last call returned, or `init`.
        usage: (rows, resources) in the resource's unit; NaN: missing.
        peaks: (rows, models, resources) predicted now, same unit; NaN: the model predicts nothing.
        limit: (rows, resources) requested now, same unit.
        at_us: (rows,) time of the sample; a row whose time does not move forward is left as it is.
        params: Which predictions are scored, and for how long they count.
    """
    seen = (at_us > state.at_us) & ~np.isnan(usage).all(axis=1)
    elapsed = np.where(seen & (state.at_us > 0), (at_us - state.at_us) / 1e6, 0.0)
    waiting = pending.observe(state.waiting, usage, seen, elapsed > params.gap_seconds)
    done = pending.due(waiting, at_us, seen, horizon_seconds=params.horizon_seconds)
    sums = _score(state, waiting.highest, done, np.exp2(-elapsed / params.half_life_seconds))
    waiting, chosen = pending.admit(
        pending.release(waiting, done), at_us, seen, interval_seconds=params.interval_seconds
    )
    state = state._replace(waiting=waiting, sums=sums, at_us=np.where(seen, at_us, state.at_us))
    if not chosen.any():
        return state
    return state._replace(
        peaks=np.where(chosen[:, None, None, :], peaks[..., None], state.peaks),
        limit=np.where(chosen[:, None, :], limit[..., None], state.limit),
    )


def widen(arrays: Mapping[str, NDArray[Any]], prefix: str, models: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a stored state with room for models that came after it; nothing was predicted by them.

    Args:
        arrays: As `rows.table.flatten` returned them; those of other states may be among them.
        prefix: Of this state.
        models: How many there are now; the stored ones are the first of them.
    """
    fill = {f"{prefix}peaks": np.nan, **{f"{prefix}sums.{name}": 0.0 for name in Sums._fields}}
    wide = dict(arrays)
    for name, value in fill.items():
        stored = wide.get(name)
        if stored is not None and stored.ndim > 1 and stored.shape[1] < models:
            shape = (len(stored), models - stored.shape[1], *stored.shape[2:])
            wide[name] = np.concatenate((stored, np.full(shape, value, dtype=stored.dtype)), axis=1)
    return wide


def summary(state: State) -> Summary:
    """Return the figures (rows, models, resources)."""
    sums = state.sums
    return Summary(
        violation_rate=_ratio(sums.violated, sums.weight),
        severity=_ratio(sums.severity, sums.weight),
        savings=_ratio(sums.savings, sums.weight),
        weight=sums.weight,
    )


def _score(state: State, highest: Array, done: Mask, fade: Array) -> Sums:
    sums = Sums(*(before * fade[:, None, None] for before in state.sums))
    rows = np.flatnonzero(done.any(axis=1))
    if not rows.size:
        return sums
    peaks = state.peaks[rows]
    oracles, limit = (np.broadcast_to(part[rows, None], peaks.shape) for part in (highest, state.limit))
    violated, savings = oracle.violation(peaks, oracles), oracle.savings(peaks, limit)
    counted = done[rows, None, None, :] & ~np.isnan(violated) & ~np.isnan(savings)
    parts = (np.ones_like(peaks), violated, oracle.severity(peaks, oracles), savings)
    for whole, part in zip(sums, parts, strict=True):
        whole[rows] += np.where(counted, part, 0.0).sum(axis=3)
    return sums


def _ratio(part: Array, whole: Array) -> Array:
    ratio: Array = np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)
    return ratio
