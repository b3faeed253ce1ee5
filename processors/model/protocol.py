"""What every local model offers."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Arrays = tuple[Array, ...]


class Model(Protocol):
    """Learns a node's second moment of usage.

    Attributes:
        name: As the registry names it.
    """

    name: str

    def init(self, nodes: int, features: int) -> Arrays:
        """Return the state before any usage; every array has a leading node axis."""

    def update(self, state: Arrays, batch: Array, elapsed: Array) -> tuple[Arrays, Array]:
        """Learn usage (nodes, samples, features), ratios, `elapsed` (nodes,) seconds after the batch before.

        Infinite seconds forget what was learned; a sample with a NaN is left out; a node without a complete sample,
        or without time elapsed, keeps its state. Returns the state after it, and the moment (nodes, features,
        features) that the state stands for. How nodes are grouped does not change the result.
        """

    def of_moment(self, moment: Array) -> Arrays:
        """Return the state that stands for moments (nodes, features, features), as closely as the model can."""
