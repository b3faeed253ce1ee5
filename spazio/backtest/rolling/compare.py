"""The comparison: how much does each predictor give back at the same share of violations, on days it was not tuned on?

A peer is a family with a configuration. It is chosen on the training recording, as the one that gives back most there.
On the test it is compared twice: at equal violations, and with the knob of the training recording, where ours takes the
probability it states. The interval is a bootstrap over days and nodes at once, paired.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spazio.backtest.rolling import score
from spazio.backtest.rolling.predictors import STATED
from spazio.backtest.rolling.score import Curve

Array = NDArray[np.float64]

VIOLATIONS = (0.05, 0.01, 0.001)
SHIPPED = {
    "Borg-default": ("", 0.9),
    "N-sigma": ("half-life 12 h", 5.0),
    "Koordinator": ("percentile 95, half-life 12 h", 0.1),
}
_CONSTANT = "Borg-default"
_RESAMPLES = 400
_EMPTY = 0.01  # of savings: a test in which a constant comes so close to the best tells nothing of predictors


class Row(NamedTuple):
    """One comparison of ours with the best configuration of a family; savings and violations are shares.

    `low` and `high` hold the difference of savings at equal violations, ours less the peer's, in 95 of 100 resamples.
    `tuned_*` is with the training recording's knob. `is_empty`: a constant is about as good as the best.
    """

    violation: float
    peer: str
    ours: float
    theirs: float
    low: float
    high: float
    tuned_violation: float
    tuned_savings: float
    is_empty: bool


class Stated(NamedTuple):
    """What ours states and what was seen: of all, by tenths of the nodes from the best to the worst, on the worst day.

    `moved` is how much the peak changes a day, as a share of the node.
    """

    stated: float
    seen: float
    tenths: tuple[float, ...]
    worst_day: float
    savings: float
    moved: float


class Saved(NamedTuple):
    """What ours gives back at a share of violations, both shares; NaN: it never violates so little."""

    violation: float
    savings: float


class Shipped(NamedTuple):
    """What a peer gives back with its own defaults, and how often usage rose above it."""

    peer: str
    violation: float
    savings: float
    moved: float


def compare(own: Curve, peers: Sequence[Curve], trained: Sequence[Curve], *, seed: int) -> list[Row]:
    """Return ours against the best configuration of each family at each share of violations.

    Args:
        own: Ours on the test.
        peers: All configurations on the test.
        trained: The same on the training recording, in the same order.
        seed: Of the bootstrap.
    """
    rng = np.random.default_rng(seed)
    weight = _resamples(own.judged.shape, own.draws, rng)
    rows = []
    for violation in VIOLATIONS:
        saved = float(score.savings_at(own, violation))
        resampled = score.savings_at(own, violation, weight)
        constant = max(float(score.savings_at(curve, violation)) for curve in peers if curve.family == _CONSTANT)
        for family in dict.fromkeys(curve.family for curve in peers):
            number = _best(trained, family, violation)
            if number is None:
                continue  # none of its settings violates so little
            peer, theirs = peers[number], float(score.savings_at(peers[number], violation))
            difference = resampled - score.savings_at(peer, violation, weight)
            low, high = np.nanquantile(difference, (0.025, 0.975)) if not np.isnan(difference).all() else (np.nan,) * 2
            seen, given = (part[_knob(trained[number], violation)] for part in score.rates(peer))
            is_empty = constant >= np.nanmax([saved, theirs]) - _EMPTY
            name = f"{family} ({peer.config})" if peer.config else family
            rows.append(
                Row(violation, name, saved, theirs, float(low), float(high), float(seen), float(given), bool(is_empty))
            )
    return rows


def saved(own: Curve) -> list[Saved]:
    """Return what ours gives back at each share of violations."""
    return [Saved(violation, float(score.savings_at(own, violation))) for violation in VIOLATIONS]


def stated(own: Curve) -> list[Stated]:
    """Return what ours states beside what was seen."""
    seen, saved = score.rates(own)
    by_day = own.violated.sum(axis=2) / np.maximum(own.judged.sum(axis=1), 1.0)
    return [
        Stated(
            stated=float(probability),
            seen=float(seen[number]),
            tenths=tuple(score.tenths(own, number).tolist()),
            worst_day=float(by_day[number].max()),
            savings=float(saved[number]),
            moved=_moved(own, number),
        )
        for number, probability in enumerate(STATED)
    ]


def shipped(peers: Sequence[Curve]) -> list[Shipped]:
    """Return the peers with their own defaults."""
    rows = []
    for curve in peers:
        config, knob = SHIPPED[curve.family]
        if curve.config == config:
            number = int(np.argmin(np.abs(curve.knob - knob)))
            seen, saved = score.rates(curve)
            rows.append(Shipped(curve.family, float(seen[number]), float(saved[number]), _moved(curve, number)))
    return rows


def _best(trained: Sequence[Curve], family: str, violation: float) -> int | None:
    """Return the number of the configuration of a family that gives back most at a share of violations."""
    saved = [float(score.savings_at(curve, violation)) if curve.family == family else np.nan for curve in trained]
    return None if np.isnan(saved).all() else int(np.nanargmax(saved))


def _knob(trained: Curve, violation: float) -> int:
    """Return the number of the setting that gives back most of those that violate no more."""
    seen, saved = score.rates(trained)
    return int(np.argmax(np.where(seen <= violation, saved, -np.inf)))


def _moved(curve: Curve, number: int) -> float:
    seen = (curve.judged > 0).sum()
    return float(curve.moved[number].sum() / max(seen, 1))


def _resamples(shape: tuple[int, ...], draws: int, rng: np.random.Generator) -> Array:
    """Return how often each day and node (resamples, days, nodes) is drawn.

    Nodes of several draws share machines. A resample has as many nodes as one draw, so that drawing the same machines
    again does not make the interval narrower.
    """
    counts = (shape[0], max(shape[1] // draws, 1))
    days, nodes = (
        rng.multinomial(count, np.full(size, 1.0 / size), size=_RESAMPLES)
        for count, size in zip(counts, shape, strict=True)
    )
    weight: Array = (days[:, :, None] * nodes[:, None, :]).astype(np.float64)
    return weight
