"""The capacity signal k: how many more expected workloads fit before some resource is full.

With usage y, headroom h and the expected workload s u the largest k with y + k s u <= 1 - h in every feature is
min_i (1 - h_i - y_i) / (s u_i) (CARICO dissertation, eq 3.10 and 3.11). Taken literally it divides by zero for an idle
node, is undefined for a full one, and depends on the sign of u. One floor removes all three:

    k = clip(min_i (1 - h_i - y_i) / max(s |u_i|, eps), 0, 1 / eps)        eps = 1 / max_pods

It is continuous, a full feature always binds, and no node has room for more workloads than pods.
"""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from processors.model.direction import Direction

Array = npt.NDArray[np.float64]


class Signal(NamedTuple):
    """How much fits on each node.

    Attributes:
        k: (nodes,), expected workloads, 0..max_pods; NaN where no usage is known.
        binding: (nodes,), index of the feature that runs out first; -1 where no feature limits.
    """

    k: Array
    binding: npt.NDArray[np.int64]


class SignalForm(Protocol):
    """A way to compute the signal: `update`, or `reference`."""

    def __call__(self, direction: Direction, usage: Array, *, headroom: Array, max_pods: int) -> Signal:
        """Return the signal; see `update`."""


def update(direction: Direction, usage: Array, *, headroom: Array, max_pods: int) -> Signal:
    """Compute the signal along the expected workload.

    Args:
        direction: Expected workload.
        usage: (nodes, features), ratios; a missing feature is left out and never binds.
        headroom: (features,), ratios that are never given away.
        max_pods: Pods that a node may run.

    >>> expected = Direction(np.array([0.5]), np.array([[0.8, 0.6]]), np.zeros(1), np.ones(1))
    >>> update(expected, np.array([[0.2, 0.7]]), headroom=np.zeros(2), max_pods=110)
    Signal(k=array([1.]), binding=array([1]))
    """
    step = np.maximum(direction.size[:, np.newaxis] * np.abs(direction.vector), 1 / max_pods)
    return _smallest((1 - headroom - usage) / step, usage, max_pods)


def reference(direction: Direction, usage: Array, *, headroom: Array, max_pods: int) -> Signal:
    """Compute the signal as CARICO dissertation, eq 3.10 and 3.11 write it, with the step sqrt(sigma1) u.

    The root of a singular value is not in units of usage: half the load does not give twice the signal. Features with
    u_i <= 0 are ignored, full or not; if none is left the signal is max_pods.

    Args:
        direction: Expected workload.
        usage: As for `update`.
        headroom: As for `update`; zero in the dissertation.
        max_pods: As for `update`; it bounds the result and nothing else.
    """
    step = np.sqrt(direction.size)[:, np.newaxis] * direction.vector
    grows = step > 0
    fits = np.where(grows, (1 - headroom - usage) / np.where(grows, step, 1.0), np.inf)
    return _smallest(fits, usage, max_pods)


def _smallest(fits: Array, usage: Array, max_pods: int) -> Signal:
    valid = ~np.isnan(usage)
    limits = np.where(valid, fits, np.inf)
    binding = np.argmin(limits, axis=1)
    least = limits[np.arange(limits.shape[0]), binding]
    k = np.where(valid.any(axis=1), np.clip(least, 0.0, float(max_pods)), np.nan)
    return Signal(k, np.where(least == np.inf, -1, binding))
