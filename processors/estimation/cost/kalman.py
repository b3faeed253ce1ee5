"""What the Kalman forms share: their answer, when they hold still, and how noisy they think the signal is.

All take signal = capacity - cost * pods with cost > 0, so that signal / cost and capacity / cost - pods are the same
number (CARICO dissertation, eq 3.12 and 3.13; its section 4.2.4 writes a plus, which would make every availability
negative).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Only keeps quotients finite; a floor with a meaning would understate nodes that fit very many pods.
COST_FLOOR = 1e-9
# Before any evidence: the signal scatters by 0.1, and capacity may be anything up to the usual 110 pods.
NOISE = 1e-2
CAPACITY_VARIANCE = 1e4

_NOISE_FLOOR = 1e-6
_NOISE_GAIN = 0.05


class Estimate(NamedTuple):
    """Answer of a Kalman form, in units of the signal.

    Attributes:
        capacity: (nodes,), signal that the node would have without pods.
        cost: (nodes,), signal that one pod takes, above 0.
        variance_of_cost: (nodes,), squared standard error of the cost.
    """

    capacity: Array
    cost: Array
    variance_of_cost: Array


def held(signal: Array, pods: Array, hold: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which nodes (nodes,) teach nothing now: in churn, without a known signal, or saturated.

    At signal 0 one more pod changes nothing, so learning on would drive the cost to 0 (CARICO dissertation, section
    4.2.4).
    """
    return hold | ~(signal > 0) | np.isnan(pods)


def prior_variance(cost: Array) -> Array:
    """Return the variance (nodes,) of an assumed cost: as unsure as it is large, and by one unit of signal at least."""
    return 1.0 + cost * cost


def noise(previous: Array, innovation: Array, explained: Array) -> Array:
    """Follow the variance of the measurement: what the innovation has beyond the filter's own uncertainty.

    As E[innovation^2] = H P H' + R, the excess over `explained` = H P H' is averaged over about 20 updates.
    """
    excess = np.maximum(innovation * innovation - explained, _NOISE_FLOOR)
    return previous + _NOISE_GAIN * (excess - previous)
