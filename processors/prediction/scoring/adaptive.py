"""Peaks from several bases, each held to the stated probability by what its predictions have shown.

Each base (`base`) has a table of its own (`residuals`) of how many scales above it usage rose. Days differ, and so do
nodes, so the share of violations that a table promises is not what comes. Two corrections in log-odds of the
probability make up for it, as in adaptive conformal inference (Gibbs and Candes, 2021):

    probability asked of the table = 1 / (1 + exp(-(logit(p) + c + d)))

with c of the partition (`calibration`) and d of the row. Both rise while too few predictions were violated and fall
while too many were. The peak in force is a mean of the bases' peaks (`expert`).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import base, conformal, expert, residuals
from processors.prediction.scoring.conformal import Spread
from processors.prediction.scoring.expert import InForce
from processors.prediction.scoring.residuals import Table
from processors.rows import table

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Rows = NDArray[np.intp]
Times = NDArray[np.int64]

MICRO = 1e6  # losses are counted in millionths of the limit: whole numbers, whose order of adding does not matter
_HALF_LIFE_SECONDS = 3.0 * 86_400  # of the losses of a row


class State(NamedTuple):
    """What is known of each row beside mean and scale.

    Attributes:
        evidence: What bases are made of.
        bases: (rows, bases, resources, slots) bases when the predictions that wait were made; NaN: not known.
        scales: (rows, bases, resources, slots) their scales then.
        peaks: (rows, experts, resources, slots) the experts' peaks then; NaN: none was.
        offset: (rows, experts, resources) correction d.
        judged: (rows, experts, resources) predictions judged, faded.
        loss: (rows, experts, resources) their pinball loss, faded, shares of the limit.
    """

    evidence: base.State
    bases: Floats
    scales: Floats
    peaks: Floats
    offset: Floats
    judged: Floats
    loss: Floats


class Learned(NamedTuple):
    """What all rows together taught.

    Attributes:
        tables: Of each base.
        judged: (experts, resources) predictions whose horizon has ended.
        violated: (experts, resources) those of them that usage rose above.
        loss: (experts, resources) their pinball loss, in millionths of the limit.
    """

    tables: tuple[Table, ...]
    judged: Array
    violated: Array
    loss: Array


def init(rows: int, resources: int, *, slots: int) -> State:
    """Return the state of rows never seen."""
    unknown = np.full((rows, base.COUNT, resources, slots), np.nan, dtype=np.float32)
    none = np.zeros((rows, expert.COUNT, resources), dtype=np.float32)
    return State(
        evidence=base.init(rows, resources),
        bases=unknown,
        scales=unknown.copy(),
        peaks=np.full((rows, expert.COUNT, resources, slots), np.nan, dtype=np.float32),
        offset=none,
        judged=none.copy(),
        loss=none.copy(),
    )


def widen(
    arrays: dict[str, NDArray[Any]], prefix: str, rows: int, resources: int, slots: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a stored state; one of the time of one or two bases gets those of rows never seen.

    The highest usage by hour of the day is taken over.
    """
    stored = {name: part for name, part in arrays.items() if name.startswith(prefix)}
    bases = stored.get(f"{prefix}bases")
    had_an_axis_of_bases = bases is None or bases.ndim > 3
    if stored and had_an_axis_of_bases:
        return arrays
    others = {name: part for name, part in arrays.items() if name not in stored}
    clock = f"{prefix}clock."
    kept = {f"{prefix}evidence.{name.removeprefix(prefix)}": stored[name] for name in stored if name.startswith(clock)}
    return others | table.flatten(init(rows, resources, slots=slots), prefix) | kept


def unjudged(state: State) -> State:
    """Return the state with no correction and no losses of any row: what was judged says nothing of another horizon."""
    return state._replace(**{name: np.zeros_like(getattr(state, name)) for name in ("offset", "judged", "loss")})


def empty(resources: int) -> Learned:
    """Return what was learned before the first window."""
    none = np.zeros((expert.COUNT, resources))
    return Learned(tuple(residuals.empty(resources) for _ in base.NAMES), none, none, none)


def update(
    followed: conformal.State,
    state: State,
    learned: Learned,
    usage: Array,
    at_us: Times,
    *,
    in_force: InForce,
    params: conformal.Params,
) -> tuple[conformal.State, State, Learned]:
    """Take in one sample of each row, and learn from the predictions whose horizon it ends.

    Args:
        followed: Mean and scale of each row.
        state: What the last call returned, or `init`.
        learned: What the last call returned, or `empty`.
        usage: (rows, resources) shares of the limit; NaN: missing.
        at_us: (rows,) time of the sample.
        in_force: What the peaks that are predicted now are made with.
        params: How it learns.
    """
    before_us = followed.at_us
    followed, turn = conformal.advance(followed, usage, at_us, params=params)
    state, learned = _evaluate(state, learned, turn, in_force, params)
    evidence = base.update(state.evidence, usage, before_us, followed, turn, params)
    state = state._replace(evidence=evidence)
    if turn.chosen.any():
        state = _admit(followed, state, usage, turn, in_force, params)
    return followed, state, learned


def read(followed: conformal.State, state: State, rows: Rows) -> tuple[conformal.State, State]:
    """Return some rows of what `spread` reads; what it does not read, which is most of the state, is not taken."""
    evidence = state.evidence
    own = followed._replace(**{name: getattr(followed, name)[rows] for name in ("weight", "mean", "variance")})
    taken = evidence._replace(
        clock=evidence.clock._replace(ahead=evidence.clock.ahead[rows]),
        past=table.take(evidence.past, rows),
        high=evidence.high[rows],
    )
    counted = {name: getattr(state, name)[rows] for name in ("offset", "judged", "loss")}
    return own, state._replace(evidence=taken, **counted)


def spread(followed: conformal.State, state: State, in_force: InForce, *, params: conformal.Params) -> Spread:
    """Return what the peaks in force are made of (rows, resources)."""
    bases, scales = base.read(followed, state.evidence, params=params)
    peaks = _peaks(bases, scales, state, in_force)
    is_ready = ~np.isnan(peaks)
    is_known = is_ready.any(axis=1)
    weight = expert.weights(state.loss, state.judged, in_force, is_ready)
    at, scale, peak = (np.where(is_ready, weight * part, 0.0).sum(axis=1) for part in (bases, scales, peaks))
    multiple = np.divide(peak - at, scale, out=np.full_like(at, np.nan), where=is_known)
    at, scale = (np.where(is_known, *parts) for parts in ((at, bases[:, base.MEAN]), (scale, scales[:, base.MEAN])))
    return Spread(at, scale, multiple)


def _peaks(bases: Array, scales: Array, state: State, in_force: InForce) -> Array:
    """Return each expert's peak (rows, experts, resources), share of the limit; NaN: it has none."""
    peaks: Array = np.minimum(np.maximum(bases + scales * expert.multiples(state.offset, in_force), 0.0), 1.0)
    return peaks


def _admit(
    followed: conformal.State,
    state: State,
    usage: Array,
    turn: conformal.Turn,
    in_force: InForce,
    params: conformal.Params,
) -> State:
    """Let the new predictions wait; those of what was never used teach nothing of what is."""
    bases, scales = base.read(followed, state.evidence, params=params)
    bases = np.where((np.isnan(usage) | (followed.mean == 0))[:, None], np.nan, bases)
    peaks = _peaks(bases, scales, state, in_force)
    here = turn.chosen[:, None, None, :]

    def put(new: Array, old: Floats) -> Floats:
        merged: Floats = np.where(here, new[..., None].astype(np.float32), old)
        return merged

    return state._replace(
        bases=put(bases, state.bases),
        scales=put(scales, state.scales),
        peaks=put(peaks, state.peaks),
    )


def _evaluate(
    state: State, learned: Learned, turn: conformal.Turn, in_force: InForce, params: conformal.Params
) -> tuple[State, Learned]:
    """Return the rows' corrections and losses, and what was learned, after predictions whose horizon has ended."""
    if not turn.done.any():
        return state, learned
    tables = tuple(
        conformal.learn(own, turn, state.bases[:, number], state.scales[:, number])
        for number, own in enumerate(learned.tables)
    )
    if all(new is old for new, old in zip(tables, learned.tables, strict=True)):
        return state, learned
    rows = np.flatnonzero(turn.done.any(axis=1))
    above = turn.waiting.highest[rows, None] - state.peaks[rows]
    is_judged = turn.done[rows, None, None, :] & ~np.isnan(above)
    violated = (is_judged & (above > 0)).sum(axis=3)
    probability, judged = in_force.probability[:, None], is_judged.sum(axis=3)
    loss = np.where(is_judged, np.maximum((1.0 - probability) * above, -probability * above), 0.0)
    horizon, interval = params.horizon_seconds, params.interval_seconds
    too_few, faded = in_force.probability * judged - violated, np.exp2(-judged * interval / _HALF_LIFE_SECONDS)
    offset, counted, lost = state.offset.copy(), state.judged.copy(), state.loss.copy()
    offset[rows] = expert.correct(offset[rows], too_few, horizon_seconds=horizon, interval_seconds=interval)
    counted[rows] = counted[rows] * faded + judged
    lost[rows] = lost[rows] * faded + loss.sum(axis=3)
    return state._replace(offset=offset, judged=counted, loss=lost), Learned(
        tables=tables,
        judged=learned.judged + judged.sum(axis=0),
        violated=learned.violated + violated.sum(axis=0),
        loss=learned.loss + np.rint(MICRO * loss).sum(axis=(0, 3)),
    )
