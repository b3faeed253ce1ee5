"""How many pods of the mix that comes next fit, and what bounds that.

What was started last says what comes next only as far as it goes on. So the bounds are those of the mix that is
expected, or of the mix of the pods that run, whichever is the wider. What is over does not come next, but jobs come
again: the lower bound also holds for the mix of what was started here with classes that have come back before. Pods
that are too large for the node even if nothing else ran come to others.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.workload.capacity import disk
from processors.workload.capacity.disk import Law
from processors.workload.capacity.fit import Fits, Others, blend, fit
from processors.workload.usage import over_slots

Array = NDArray[np.float64]


class Costs(NamedTuple):
    """What one pod of each class takes: a node's slots first, then the cluster's classes.

    Attributes:
        label: (nodes, classes) EMPTY: no class in this column.
        value: (nodes, classes, resources) share of what pods may have that one pod takes.
        doubt: (nodes, classes, resources) variance of that.
        apart: (nodes, classes, resources) variance of one pod's cost around it.
        soaking: (nodes, classes) True: threads of the class are always runnable.
    """

    label: NDArray[np.int64]
    value: Array
    doubt: Array
    apart: Array
    soaking: NDArray[np.bool_]


_UNKNOWN_APART = 0.5  # standard deviation of one pod's cost around that of the mean pod, relative
_ROUNDING = 1e-9


class Unknown(NamedTuple):
    """A pod of no class that is known.

    Attributes:
        share: (nodes, resources) share of what pods may have that it takes.
        averaged: It is the mean pod of the cluster, from which others differ, and not the reference pod, which takes
            what it takes by definition.
    """

    share: Array
    averaged: bool


class Mixed(NamedTuple):
    """What a pod of the mix takes, as in `Costs` with one column.

    `weights` (nodes, classes) are those of classes in the mix, and `reference` (nodes,) is that of what is likely but
    of no class.
    """

    weights: Array
    reference: Array
    value: Array
    doubt: Array
    apart: Array


def _mixed(costs: Costs, weights: Array, unknown: Unknown) -> Mixed:
    sums = over_slots(weights[..., None])
    rest = np.where(sums < 1 - _ROUNDING, 1.0 - sums, 0.0)
    apart = np.where((rest < 1) | unknown.averaged, (_UNKNOWN_APART * unknown.share) ** 2, 0.0)
    others = Others(rest, unknown.share, apart) if rest.any() else None
    parts = blend(weights, costs.value, costs.doubt, costs.apart, others)
    return Mixed(weights, rest[:, 0], *(part[:, None] for part in parts))


def _possible(costs: Costs, likely: Array, pods: Array) -> Array:
    """Return how likely each class is (nodes, classes) without those of which not one pod fits on the empty node."""
    likely = np.where(costs.label >= 0, likely, 0.0)
    impossible = (costs.value > 1).any(axis=2) & (pods <= 0) & (likely > 0)
    if not impossible.any():
        return likely
    kept = np.where(impossible, 0.0, likely)
    before, after = (over_slots(each[..., None]) for each in (likely, kept))
    # Where no other class comes, what comes does not fit.
    return np.where(after > 0, kept * np.divide(before, after, out=np.ones_like(after), where=after > 0), likely)


class Left(NamedTuple):
    """What pods may still take.

    Attributes:
        free: (nodes, resources) share of what they may have.
        spread: (nodes, resources) variance of that.
        pods: (nodes,) how many the node may still run.
        whole: Round lower bounds down to whole pods.
    """

    free: Array
    spread: Array
    pods: Array
    whole: bool


def fits(left: Left, costs: Costs | Mixed, law: Law | None) -> Fits:
    """Return how many pods of these costs fit, also by the disks where they take something of them (`law`)."""
    all_but_disks = fit(left.free, left.spread, costs.value, costs.doubt, costs.apart, left.pods, whole=left.whole)
    return all_but_disks if law is None else disk.limited(all_but_disks, law, left.pods, whole=left.whole)


class Next(NamedTuple):
    """What comes next, (nodes, classes): how likely each class is, and more mixes for which a lower bound holds."""

    likely: Array
    also: tuple[Array, ...] = ()


def of_mix(
    left: Left, costs: Costs, disks: Law | None, coming: Next, pods: Array, unknown: Unknown
) -> tuple[Mixed, Fits, Law | None]:
    """Return what a pod of the mix takes, how many fit, and what one takes of the disks.

    Args:
        left: What pods may still take.
        costs: What pods of each class take.
        disks: What they take of the disks; None: no node waits for them.
        coming: What comes next, at most 1 in all.
        pods: (nodes, classes) running pods.
        unknown: A pod of no class that is known.
    """
    likely = _possible(costs, coming.likely, pods)
    mixed = _mixed(costs, likely, unknown)
    all_pods = over_slots(pods[..., None])
    shares = np.divide(pods, all_pods, out=likely.copy(), where=all_pods > 0)
    running = _mixed(costs, shares, unknown)
    law, law_of_running = (None if disks is None else disk.mixed(disks, each.weights) for each in (mixed, running))
    expected, others = fits(left, mixed, law), fits(left, running, law_of_running)
    lower, upper = np.minimum(expected.lower, others.lower), np.maximum(expected.upper, others.upper)
    bounded = expected._replace(lower=lower, upper=upper)
    for weights in coming.also:
        other = _mixed(costs, _possible(costs, weights, pods), unknown)
        bounded = bounded.at_most(fits(left, other, None if disks is None else disk.mixed(disks, other.weights)))
    return mixed, bounded, law
