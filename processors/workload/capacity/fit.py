"""How many more pods of given costs fit into what is free, with bounds on either side."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation.availability import ONE_SIDED_90, PODS
from processors.workload.usage import over_slots

Array = NDArray[np.float64]

_LEAST = 1e-9  # cost
_ROUNDING = 1e-9  # pods: what sums of floating-point numbers lack of a whole one
_NEXT = 4.0  # how many pods ahead are known to be of the mix


class Fits(NamedTuple):
    """What fits, (nodes, classes), with one-sided 90 % bounds; `binding` as in `class_capacity.Room`."""

    available: Array
    lower: Array
    upper: Array
    binding: NDArray[np.int64]

    def at_most(self, other: "Fits") -> "Fits":
        """Return this with the lower of both lower bounds."""
        return self._replace(lower=np.minimum(self.lower, other.lower))


class Others(NamedTuple):
    """Pods of no class in a mix: their weight (nodes, 1), what one takes and its variance (nodes, resources)."""

    weight: Array
    value: Array
    apart: Array


def fit(free: Array, spread: Array, cost: Array, doubt: Array, apart: Array, left: Array, *, whole: bool) -> Fits:
    """Return what fits, (nodes, classes).

    Args:
        free: (nodes, resources) share that pods may still take.
        spread: (nodes, resources) its variance.
        cost: (nodes, classes, resources) share that one pod takes.
        doubt: (nodes, classes, resources) variance of that.
        apart: (nodes, classes, resources) variance of one pod's cost around it.
        left: (nodes,) pods up to the pod limit.
        whole: Round lower down.
    """
    cost = np.maximum(cost, _LEAST)
    room = free[:, None, :] / cost
    scarce = np.where(np.isnan(room), np.inf, room)
    resource = np.argmin(scarce, axis=2)
    chosen = np.min(scarce, axis=2)
    most = np.broadcast_to(left[:, None], chosen.shape)
    bounded = np.where(np.isfinite(chosen), chosen, most)
    unsure = ONE_SIDED_90 * np.sqrt(spread)[:, None, :]
    costly = 1.0 + ONE_SIDED_90 * np.sqrt(doubt + apart / np.maximum(scarce, 1.0)) / cost
    low = np.nan_to_num(np.maximum(free[:, None, :] - unsure, 0.0) / (cost * costly), nan=np.inf)
    high = np.nan_to_num((free[:, None, :] + unsure) / cost * costly, nan=np.inf)
    available = np.minimum(bounded, most)
    lower = np.minimum(low.min(axis=2), available)
    return Fits(
        available=available,
        lower=np.floor(lower + _ROUNDING) if whole else lower,
        upper=np.maximum(np.minimum(high.min(axis=2), most), available),
        binding=np.where(most < chosen, PODS, resource),
    )


def blend(
    weights: Array, value: Array, doubt: Array, apart: Array, others: Others | None = None
) -> tuple[Array, Array, Array]:
    """Return what a pod of a mix takes, its variance, and one pod's variance around it, (nodes, resources) each.

    Args:
        weights: (nodes, classes) of the mix.
        value: (nodes, classes, resources) share that one pod takes.
        doubt: (nodes, classes, resources) variance of that.
        apart: (nodes, classes, resources) variance of one pod's share around it.
        others: Pods of no class; None: there are none in the mix.
    """
    weight = weights[..., None]
    mean, squares, around = over_slots(weight * value), over_slots(weight * value**2), over_slots(weight * apart)
    if others is not None:
        mean, squares = mean + others.weight * others.value, squares + others.weight * others.value**2
        around += others.weight * others.apart
    between = np.maximum(squares - mean**2, 0.0)
    # Which classes the next pods are of is unknown, too.
    return mean, over_slots(weight**2 * doubt) + between / _NEXT, between + around
