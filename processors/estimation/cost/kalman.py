"""What the Kalman forms share: their answer, when they hold still, how noisy they take the signal to be, and the room.

All take signal = capacity - cost * pods with cost > 0, so that signal / cost and capacity / cost - pods are the same
number (CARICO dissertation, eq 3.12 and 3.13; its section 4.2.4 writes a plus, which would make every availability
negative).
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processors.estimation.availability import ONE_SIDED_90, PODS
from processors.estimation.cost import protocol
from processors.estimation.cost.protocol import Second
from processors.rows import table
from schemas.sections import estimation

Array = npt.NDArray[np.float64]
Arrays = tuple[Array, ...]
Flags = npt.NDArray[np.bool_]

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


def held(signal: Array, pods: Array, hold: Flags) -> Flags:
    """Return from which nodes (nodes,) nothing is learned now: in churn, without a known signal, or saturated.

    At signal 0 one more pod changes nothing, so learning on would drive the cost to 0 (CARICO dissertation, section
    4.2.4).
    """
    return hold | ~(signal > 0) | np.isnan(pods)


class Start(NamedTuple):
    """What every form starts from; each field is (nodes,)."""

    cost: Array
    variance_of_cost: Array
    noise: Array
    pods: Array


def start(cost0: Array) -> Start:
    """Return an assumed cost of a pod (nodes,), NaN if not known, with nothing learned beside it."""
    cost = np.fmax(cost0, COST_FLOOR)
    return Start(cost, prior_variance(cost), np.full_like(cost, NOISE), np.full_like(cost, np.nan))


def prior_variance(cost: Array) -> Array:
    """Return the variance (nodes,) of an assumed cost: as unsure as it is large, and by one unit of signal at least."""
    return 1.0 + cost * cost


def noise(previous: Array, innovation: Array, explained: Array) -> Array:
    """Follow the variance of the measurement: what the innovation has beyond the filter's own uncertainty.

    As E[innovation^2] = H P H' + R, the excess over `explained` = H P H' is averaged over about 20 updates.
    """
    excess = np.maximum(innovation * innovation - explained, _NOISE_FLOOR)
    return previous + _NOISE_GAIN * (excess - previous)


class Kalman(ABC):
    """An estimator that reads room off capacity and cost of the reference model's signal.

    On the default model the same filters are off by 9 to 21 pods where least squares is off by 0.1.
    """

    variants: tuple[str, ...] = ("carico",)
    by_class = False

    def __init__(self, settings: estimation.Estimate) -> None:
        """Learn with the process noise of the settings."""
        self._process_noise, self._hold_in_churn = settings.process_noise, settings.hold_in_churn

    @abstractmethod
    def init(self, signal: Array, cost: Array) -> Arrays:
        """Return the state of nodes with this signal (nodes,) and assumed cost of a pod (nodes,)."""

    @abstractmethod
    def learn(self, state: Arrays, signal: Array, pods: Array, hold: Flags) -> tuple[Arrays, Estimate]:
        """Learn from one second of every node; those in `hold` keep their state."""

    def update(self, state: Arrays, second: Second, estimate: protocol.Estimate) -> tuple[Arrays, protocol.Estimate]:
        """Replace the room by `signal/cost` (eq 3.12), in churn by `capacity/cost - pods` (eq 3.13).

        A node's first block starts from the signal that one pod of the prior cost takes away.
        """
        signal, pods, churn, room = second.signal, second.pods, second.settling, estimate.room
        begun = self.init(signal, np.maximum(signal, 1e-6) / np.maximum(room.available, 1e-3))
        hold = (churn & self._hold_in_churn) | second.full | (signal <= 0)
        state, learned = self.learn(table.where(second.first, begun, state), signal, pods, hold)
        limit = np.maximum(second.most - pods, 0.0)
        by_signal, by_capacity = signal / learned.cost, np.maximum(learned.capacity / learned.cost - pods, 0.0)
        believed = np.where(churn, by_capacity, by_signal)
        available = np.minimum(believed, limit)
        deviation = believed * np.sqrt(np.maximum(learned.variance_of_cost, 0.0)) / learned.cost
        replaced = room._replace(
            available=available,
            lower=np.clip(believed - ONE_SIDED_90 * deviation, 0.0, available),
            upper=np.maximum(np.minimum(believed + ONE_SIDED_90 * deviation, limit), available),
            binding=np.where(limit < believed, PODS, room.resource),
            cost=learned.cost,
            capacity=np.maximum(learned.capacity, 0.0),
        )
        prior = np.clip(learned.variance_of_cost / prior_variance(learned.cost), 0.0, 1.0)
        return state, protocol.Estimate(replaced, prior)
