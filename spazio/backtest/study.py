"""The comparison: at equal savings, does our predictor violate less than the best of the others?

Each day is tested with what was learned and chosen on the other days. A predictor is a family, a configuration and a
knob. At each level of savings the configuration is the one that violated least on the other days; its knob is set so
that it saves just as much on the tested day, for the peer and for ours alike, since only equal savings compare. Beside
it stand the peer whose configuration is the best in hindsight, which could not have been chosen beforehand, and both
with the knob of the other days too, where savings then differ a little. A day without others is compared in hindsight
only.

The interval is a bootstrap over nodes, paired. Nodes of several draws share machines, so a resample has only as many
nodes as one draw: intervals do not get narrower by drawing the same machines again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import residuals
from schemas.sections.prediction import Predict
from spazio import count
from spazio.backtest import ours, peers, score, stability, trace

Array = NDArray[np.float64]

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.725, 0.75, 0.775, 0.8, 0.82)
OTHERS, HINDSIGHT = "other days", "hindsight"
_RESAMPLES = 2000


class Day(NamedTuple):
    """One day's scores.

    Attributes:
        own: Our curve.
        peers: Every peer's curve, in the same order on each day.
        nodes: Nodes of one draw.
        steadiness: Of what the Mid tier would have got, at the default probability.
    """

    own: score.Curve
    peers: list[score.Curve]
    nodes: int
    steadiness: list[stability.Stability]


class Row(NamedTuple):
    """One comparison of ours with one peer, on one day at one level of savings; rates are means over nodes.

    `low` and `high` hold the difference (ours less the peer's) in 95 of 100 resamples. The `tuned` figures are those
    with the knob of the other days.
    """

    day: str
    savings: float
    against: str
    peer: str
    ours: float
    theirs: float
    ours_severity: float
    theirs_severity: float
    difference: float
    low: float
    high: float
    tuned_ours: float
    tuned_theirs: float
    tuned_savings_ours: float
    tuned_savings_theirs: float


def assess(
    days: Mapping[str, trace.Percent],
    *,
    size: int,
    draws: int,
    seed: int,
    learned: residuals.Table | None,
    progress: Callable[[str], None],
) -> tuple[Mapping[str, Day], residuals.Table]:
    """Score every predictor on every day.

    Args:
        days: (machines, samples) in percent, of `trace.read`.
        size: Machines of a node.
        draws: How often nodes are drawn.
        seed: Of the first draw.
        learned: What our predictor knows; None: of each day what the other days teach.
        progress: Called with each step.

    Returns:
        The scores, and what all days together teach.
    """
    nodes = {day: [trace.draw(part, size, seed + number) for number in range(draws)] for day, part in days.items()}
    usage = {day: np.concatenate([peers.usage_of(part) for part in parts]) for day, parts in nodes.items()}
    followed = {}
    for day in days:
        progress(f"{day}: following {count.of(len(usage[day]), 'node')}")
        followed[day] = ours.follow(usage[day])
    scored = {}
    for day in days:
        progress(f"{day}: scoring peers")
        table = learned or ours.learn(followed[other] for other in days if other != day)
        own = ours.curve(followed[day], table, usage[day])
        steady = stability.measure(day, ours.stated(followed[day], table, Predict().violation))
        scored[day] = Day(own, list(peers.curves(nodes[day])), len(nodes[day][0]), steady)
    return scored, ours.learn(followed.values())


def compare(days: Mapping[str, Day], *, seed: int) -> list[Row]:
    """Return ours against the best peer, chosen on the other days and in hindsight, for each day and level."""
    rng = np.random.default_rng(seed)
    rows = []
    for day, tested in days.items():
        others = [other for name, other in days.items() if name != day]
        for level in LEVELS:
            own = score.at(tested.own, level)
            for against, source in ((OTHERS, others or [tested]), (HINDSIGHT, [tested])):
                number = best(source, level, among=tested)
                peer = None if number is None else score.at(tested.peers[number], level)
                if number is None or own is None or peer is None:
                    continue  # not both can save so much
                figures = _difference(own, peer, tested.nodes, rng)
                tuned = _tuned(tested, others or [tested], number, level)
                rows.append(Row(day, level, against, _name(tested.peers[number]), *figures, *tuned))
    return rows


def best(days: Sequence[Day], level: float, *, among: Day) -> int | None:
    """Return the number of the peer that violates least on these days, of those that save so much on the day `among`.

    None where no peer does.
    """
    least, number_of_best = np.inf, None
    for number, tested in enumerate(among.peers):
        points = [score.at(curve, level) for curve in (tested, *(day.peers[number] for day in days))]
        rates = [float(point.violation.mean()) for point in points[1:] if point is not None]
        if None not in points and np.mean(rates) < least:
            least, number_of_best = float(np.mean(rates)), number
    return number_of_best


def bootstrap(difference: Array, size: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return the interval that holds the mean of `size` resampled differences (nodes,) in 95 of 100 resamples."""
    means = difference[rng.integers(len(difference), size=(_RESAMPLES, size))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _difference(own: score.Point, peer: score.Point, size: int, rng: np.random.Generator) -> tuple[float, ...]:
    difference = own.violation - peer.violation
    means = (part.mean() for part in (own.violation, peer.violation, own.severity, peer.severity, difference))
    return (*(float(mean) for mean in means), *bootstrap(difference, size, rng))


def _name(curve: score.Curve) -> str:
    return f"{curve.family} ({curve.config})" if curve.config else curve.family


def _tuned(tested: Day, others: Sequence[Day], number: int, level: float) -> tuple[float, ...]:
    """Return violation rates and savings of ours and the peer, with the knob that saves as wanted on the other days."""
    pairs = [(tested.own, [day.own for day in others]), (tested.peers[number], [day.peers[number] for day in others])]
    figures = []
    for curve, elsewhere in pairs:
        where = score.locate(score.join(elsewhere), level)
        point = None if where is None else score.point(curve, where)
        figures.append((np.nan, np.nan) if point is None else (point.violation.mean(), point.savings.mean()))
    return (*(float(rate) for rate, _ in figures), *(float(savings) for _, savings in figures))
