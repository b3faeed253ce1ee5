"""What every form of smoothing offers."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Arrays = tuple[Array, ...]


class Smoothing(Protocol):
    """Takes short spikes out of metrics, sample by sample.

    Attributes:
        name: As settings name it.
    """

    name: str

    @property
    def reach(self) -> int:
        """How many older samples a smoothed one is made of; an average has no such end and counts 0."""

    def init(self, nodes: int, metrics: int) -> Arrays:
        """Return the state before any sample; every array has a leading node axis."""

    def update(self, state: Arrays, samples: Array, step: Array) -> tuple[Arrays, Array]:
        """Smooth samples (nodes, samples, metrics), NaN = missing, that are `step` (nodes,) seconds apart.

        Returns the state after them, and the smoothed samples in the shape of `samples`. How samples are cut into
        calls does not change the result; neither does it how nodes are grouped.
        """
