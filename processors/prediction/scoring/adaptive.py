"""Peaks from two bases, each held to the stated probability by what its predictions have shown.

A base is what scales are added to (`conformal`): the faded mean m, or the greater of m + s and the highest usage at the
same hours of earlier days (`same_clock`). The first follows usage that has no clock, the second knows what rises every
day. Each base has a table of its own.

Days differ, and so do nodes, so the share of violations that a table promises is not what comes. Two corrections in
log-odds of the probability make up for it, as in adaptive conformal inference (Gibbs and Candes, 2021):

    probability asked of the table = 1 / (1 + exp(-(logit(p) + c + d)))

with c of the partition (`calibration`) and d of the row. Both rise while too few predictions were violated and fall
while too many were. The base in force is the one whose peaks had the smaller pinball loss, the proper score of a
quantile.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import conformal, residuals, same_clock
from processors.prediction.scoring.conformal import Spread
from processors.prediction.scoring.residuals import Table
from processors.rows import table

Array = NDArray[np.float64]
Times = NDArray[np.int64]

MEAN, CLOCK = 0, 1
BASES = 2
RUNGS = np.linspace(-2.0, 2.0, 17)  # log-odds that a row may be off its partition
_RATE = 0.25  # log-odds that a row moves while all predictions of a horizon are violated
_MICRO = 1e6  # losses are counted in millionths of the limit: whole numbers, whose order of adding does not matter


class State(NamedTuple):
    """What is known of each row beside mean and scale.

    Attributes:
        clock: Highest usage at the hours of the day.
        bases: (rows, resources, slots) the second base when the predictions that wait were made.
        peaks: (rows, bases, resources, slots) peaks in force when they were made; NaN: none was.
        offset: (rows, bases, resources) correction d.
    """

    clock: same_clock.State
    bases: Array
    peaks: Array
    offset: Array


class Learned(NamedTuple):
    """What all rows together taught.

    Attributes:
        mean: Table of the first base.
        clock: Table of the second.
        judged: (bases, resources) predictions of peaks in force whose horizon has ended.
        violated: (bases, resources) those of them that usage rose above.
        loss: (bases, resources) their pinball loss, in millionths of the limit.
    """

    mean: Table
    clock: Table
    judged: Array
    violated: Array
    loss: Array


class InForce(NamedTuple):
    """What all rows predict with.

    Attributes:
        probability: Wanted share of violations.
        ladder: (bases, resources, rungs) multiple of the scale at each of `RUNGS`; NaN: nothing can be vouched for.
        base: (resources,) which base decides.
    """

    probability: float
    ladder: Array
    base: NDArray[np.int64]


def init(rows: int, resources: int, *, slots: int) -> State:
    """Return the state of rows never seen."""
    return State(
        clock=same_clock.init(rows, resources),
        bases=np.full((rows, resources, slots), np.nan),
        peaks=np.full((rows, BASES, resources, slots), np.nan),
        offset=np.zeros((rows, BASES, resources)),
    )


def widen(
    arrays: dict[str, NDArray[Any]], prefix: str, rows: int, resources: int, slots: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a stored state; one of the time of a single base gets those of rows never seen."""
    if any(name.startswith(prefix) for name in arrays):
        return arrays
    return table.flatten(init(rows, resources, slots=slots), prefix) | arrays


def empty(resources: int) -> Learned:
    """Return what was learned before the first window."""
    none = np.zeros((BASES, resources))
    return Learned(residuals.empty(resources), residuals.empty(resources), none, none, none)


def nothing(resources: int, probability: float) -> InForce:
    """Return what is in force before anything was learned."""
    ladder = np.full((BASES, resources, len(RUNGS)), np.nan)
    return InForce(probability, ladder, np.full(resources, MEAN))


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
    offset, learned = _evaluate(state, learned, turn, in_force, params)
    clock = same_clock.update(state.clock, usage, before_us, at_us, horizon_seconds=params.horizon_seconds)
    state = state._replace(clock=clock, offset=offset)
    if turn.chosen.any():
        base, scale = bases(followed, state, params=params)
        base = np.where(np.isnan(usage)[:, None], np.nan, base)
        peaks = np.clip(base + scale[:, None] * multiples(state, in_force), 0.0, 1.0)
        here = turn.chosen[:, None, :]
        state = state._replace(
            bases=np.where(here, base[:, CLOCK, :, None], state.bases),
            peaks=np.where(here[:, None], peaks[..., None], state.peaks),
        )
    return followed, state, learned


def bases(followed: conformal.State, state: State, *, params: conformal.Params) -> tuple[Array, Array]:
    """Return the bases (rows, bases, resources), shares of the limit, and the scale (rows, resources) of all."""
    scale = conformal.scale(followed, params=params)
    mean = np.where(followed.weight > 0, followed.mean, np.nan)
    clock = np.where(np.isnan(mean), np.nan, np.fmax(mean + scale, state.clock.ahead))
    return np.stack([mean, clock], axis=1), scale


def multiples(state: State, in_force: InForce) -> Array:
    """Return how many scales above each base (rows, bases, resources) the peak is; NaN: nothing was learned."""
    rung = (state.offset - RUNGS[0]) / (RUNGS[1] - RUNGS[0])
    low = np.minimum(rung.astype(np.intp), len(RUNGS) - 2)
    ladder = np.broadcast_to(in_force.ladder, (*low.shape, len(RUNGS)))
    lower, upper = (np.take_along_axis(ladder, (low + more)[..., None], axis=3)[..., 0] for more in (0, 1))
    multiple: Array = lower + (rung - low) * (upper - lower)
    return multiple


def spread(followed: conformal.State, state: State, in_force: InForce, *, params: conformal.Params) -> Spread:
    """Return what the peaks in force are made of (rows, resources)."""
    base, scale = bases(followed, state, params=params)
    multiple = multiples(state, in_force)
    chosen = np.broadcast_to(in_force.base, (len(scale), 1, len(in_force.base)))
    base, multiple = (np.take_along_axis(part, chosen, axis=1)[:, 0] for part in (base, multiple))
    return Spread(base, scale, multiple)


def _evaluate(
    state: State, learned: Learned, turn: conformal.Turn, in_force: InForce, params: conformal.Params
) -> tuple[Array, Learned]:
    """Return the rows' corrections, and what was learned, after the predictions whose horizon has ended."""
    mean = conformal.learn(learned.mean, turn, turn.means)
    if mean is learned.mean:
        return state.offset, learned
    above = turn.waiting.highest[:, None] - state.peaks
    is_judged = turn.done[:, None, None, :] & ~np.isnan(above)
    violated = is_judged & (above > 0)
    probability = in_force.probability
    loss = np.where(is_judged, np.maximum((1.0 - probability) * above, -probability * above), 0.0)
    judged, too_many = is_judged.sum(axis=3), violated.sum(axis=3)
    a_horizon = max(params.horizon_seconds / params.interval_seconds, 1.0)
    offset = state.offset + _RATE / a_horizon * (probability * judged - too_many)
    return np.clip(offset, RUNGS[0], RUNGS[-1]), Learned(
        mean=mean,
        clock=conformal.learn(learned.clock, turn, state.bases),
        judged=learned.judged + judged.sum(axis=0),
        violated=learned.violated + too_many.sum(axis=0),
        loss=learned.loss + np.rint(_MICRO * loss).sum(axis=(0, 3)),
    )
