"""What the nodes of a partition know of classes together: pods, usage and starts by class, for the global model."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.model import fair_share
from processors.workload import classes, kind, mix, usage
from processors.workload.cluster import attested, voting
from processors.workload.cost import Cost
from schemas.messages.estimate import ClassSum

Array = NDArray[np.float64]

_FORGOTTEN = 1e-4  # starts
_FIELDS = ("pods", "cpu", "memory", "soaking", "started", "recent", "running", "votes", "coming")


class Sums(NamedTuple):
    """Sums by class; of all starts those that repeat the class before them, and those that could; voting nodes.

    `voted` and `voiced` are sums of `votes` and `coming`, also of those for classes that are not listed; `others` is
    how many nodes vote for classes that the mix lacks.
    """

    classes: dict[str, ClassSum]
    repeats: float
    transitions: float
    voting: int
    voted: float
    voiced: float
    others: float


class Believed(NamedTuple):
    """What the cluster knows, which bounds what one node contributes; NaN: not known, no bound.

    Attributes:
        cost: (nodes, slots, resources) of the class of each slot.
        fair: (nodes, slots) pods of it that a node has evidence of, in the mean.
        mix: (nodes, resources) cost of a pod of the mix.
        mixed: (nodes, slots) True: the class of the slot is in the mix.
    """

    cost: Array
    fair: Array
    mix: Array
    mixed: NDArray[np.bool_]


def add_up(state: classes.State, cost: Cost, believed: Believed, names: Sequence[str], at_us: int) -> Sums | None:
    """Add up nodes, each as far as it has evidence of its own; None: they know of no class.

    Args:
        state: Live nodes.
        cost: What pods of their classes take.
        believed: What the cluster knows.
        names: Name of each label.
        at_us: The time.
    """
    counted, taken = _evidence(state, cost)
    evident = counted > 0
    share = voting.contribution(counted, taken, believed.cost, believed.fair)
    factor, taken = share.factor, share.amount
    counted = counted * factor
    soaking = counted * (state.kind > kind.SOAKING)
    starts = mix.faded(state.starts, np.maximum(at_us - state.at_us, 0) / 1e6)
    used = (state.label >= 0) & ((counted > 0) | (starts.started > _FORGOTTEN))
    running = np.where(counted > 0, state.pods, 0.0) * factor
    assumed = np.where(np.isnan(believed.cost), cost.value, believed.cost)
    likely = mix.weights(starts.started, starts.recent, state.pods, starts.repeats, starts.transitions)
    votes = voting.votes(likely, assumed, believed.mixed, believed.mix)
    coming = np.minimum(starts.transitions, 1.0)[:, None] * likely
    columns = [counted, taken[..., 0], taken[..., 1], soaking, starts.started, starts.recent, running, votes, coming]
    totals = np.stack([np.bincount(state.label[used], column[used], len(names)) for column in columns], axis=1)
    largest = np.zeros(len(names))
    np.maximum.at(largest, state.label[used], np.minimum(coming[used], 1.0))
    nodes = np.bincount(state.label[used & evident], minlength=len(names))
    above, below = (
        fair_share.furthest(part[used], state.label[used], len(names)) for part in (share.above, share.below)
    )
    present = np.flatnonzero((totals[:, 0] > 0) | (totals[:, 4] > 0)).tolist()
    ranked = {names[label]: label for _, _, label in sorted((-totals[each, 0], names[each], each) for each in present)}
    by_class = {
        name: ClassSum(
            **dict(zip(_FIELDS, totals[label].tolist(), strict=True)),
            nodes=int(nodes[label]),
            largest=float(largest[label]),
            above=_some(above[label]),
            below=_some(below[label]),
        )
        for name, label in ((name, ranked[name]) for name in attested.listed(ranked, lambda name: nodes[ranked[name]]))
    }
    if not by_class:
        return None
    repeats, transitions = (float(np.add.accumulate(part)[-1]) for part in (starts.repeats, starts.transitions))
    voters = int(np.count_nonzero(np.any(votes > 0, axis=1)))
    voted, voiced = (math.fsum(totals[:, _FIELDS.index(name)].tolist()) for name in ("votes", "coming"))
    return Sums(by_class, repeats, transitions, voters, voted, voiced, voting.others(votes, believed.mixed))


def of_nodes(state: classes.State, cost: Cost, weight: Array) -> tuple[Array, Array]:
    """Return of how many pods that may come again nodes have evidence, (nodes,), and what they use, (nodes, resources).

    Args:
        state: The nodes.
        cost: What pods of their classes take.
        weight: (nodes, slots) by which the class counts, 0..1.
    """
    counted, taken = _evidence(state, cost)
    again = np.where((state.label >= 0) & (state.starts.started > 0), weight, 0.0)[..., None]
    parts = (np.where(again > 0, again * part, 0.0) for part in (counted[..., None], taken))
    pods, used = map(usage.over_slots, parts)
    return pods[:, 0], used


def _evidence(state: classes.State, cost: Cost) -> tuple[Array, Array]:
    """Return of how many pods of each class there is evidence, (nodes, slots), and what they use, (…, resources)."""
    counted = np.maximum(1.0 - cost.prior.max(axis=2), 0.0) * state.pods
    return counted, classes.slope(state) * counted[..., None]


def _some(beyond: Array) -> list[float] | None:
    """Return how far a class's furthest node is beyond the range; None: it is within."""
    return beyond.tolist() if beyond.any() else None
