"""What every estimator offers, and what it is asked with."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from processors.estimation.availability import Room

Array = NDArray[np.float64]
Arrays = tuple[Array, ...]
Flags = NDArray[np.bool_]


class Second(NamedTuple):
    """What a second has measured, per node.

    Attributes:
        first: (nodes,) True: the node's first block.
        signal: (nodes,) capacity signal; NaN: not known.
        pods: (nodes,) running pods.
        settling: (nodes,) True: containers start or end now.
        full: (nodes,) True: a resource is used up, so usage shows no cost.
        most: (nodes,) pods that a node may run.
    """

    first: Flags
    signal: Array
    pods: Array
    settling: Flags
    full: Flags
    most: Array


class Estimate(NamedTuple):
    """How many pods fit, and the share of the prior in that.

    Attributes:
        room: Availability.
        prior: (nodes,) share of what is assumed in the cost of a pod, 0..1.
    """

    room: Room
    prior: Array


class Estimator(Protocol):
    """Turns a second into how many more pods fit.

    Attributes:
        name: As settings name it.
        variants: Variants of the model, as settings name them, that it goes with.
        by_class: Room for the mix of classes replaces room for the mean pod where classes are known.
    """

    name: str
    variants: tuple[str, ...]
    by_class: bool

    def init(self, signal: Array, cost: Array) -> Arrays:
        """Return the state of nodes of which these (nodes,) are assumed; every array has a leading node axis."""

    def update(self, state: Arrays, second: Second, estimate: Estimate) -> tuple[Arrays, Estimate]:
        """Return the state after a second, and the estimate to use in the place of that by least squares."""
