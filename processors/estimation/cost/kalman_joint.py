"""Capacity and cost together: one two-dimensional Kalman filter on signal = capacity - cost * pods.

CARICO dissertation, section 4.2.4, second form, sign turned. With a small process noise it does not oscillate, as the
dissertation found with a large one. At a constant number of pods only one combination of the two is visible, and the
plain filter would wander along the other; so cost is corrected only within 30 updates of a change of pods, and is
otherwise a parameter that is considered but not estimated (Schmidt's form: its gain is zero, its uncertainty and
covariance still count). The covariance is updated as (I - K H) P (I - K H)' + K R K', which holds for any gain.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processors.estimation.cost import kalman
from processors.estimation.cost.kalman import Estimate, Kalman

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_LEARNING_UPDATES = 30


class State(NamedTuple):
    """One filter per node; each field is (nodes,).

    Attributes:
        capacity: Signal without pods.
        cost: Signal that one pod takes.
        capacity_variance: Of the capacity.
        covariance: Of both.
        variance_of_cost: Squared standard error of the cost.
        noise: Variance of the signal.
        pods: At the last update that was not held; NaN before it.
        steady: Updates since the number of pods changed; infinite before it ever did.
    """

    capacity: Array
    cost: Array
    capacity_variance: Array
    covariance: Array
    variance_of_cost: Array
    noise: Array
    pods: Array
    steady: Array


def init(signal0: Array, cost0: Array) -> State:
    """Start from a signal and an assumed cost of a pod, both (nodes,) and NaN if not known."""
    start = kalman.start(cost0)
    return State(
        capacity=np.where(np.isnan(signal0), 0.0, signal0),
        cost=start.cost,
        capacity_variance=np.full_like(start.cost, kalman.CAPACITY_VARIANCE),
        covariance=np.zeros_like(start.cost),
        variance_of_cost=start.variance_of_cost,
        noise=start.noise,
        pods=start.pods,
        steady=np.full_like(start.cost, np.inf),
    )


def update(state: State, signal: Array, pods: Array, hold: Flags, *, process_noise: float) -> tuple[State, Estimate]:
    """Learn from one second of every node.

    Args:
        state: What the last call returned, or `init`.
        signal: (nodes,), capacity signal; NaN = missing.
        pods: (nodes,), running pods.
        hold: (nodes,), nodes in churn. They and saturated ones (signal 0) keep their state as it is.
        process_noise: Variance that true capacity and true cost each gain per update.
    """
    still = kalman.held(signal, pods, hold)
    changed = (pods != state.pods) & ~np.isnan(state.pods)
    steady = np.where(changed, 0.0, state.steady + 1)
    capacity_variance = state.capacity_variance + process_noise
    cost_variance = state.variance_of_cost + process_noise
    # P H' and H P H' for H = (1, -pods)
    toward_capacity = capacity_variance - pods * state.covariance
    toward_cost = state.covariance - pods * cost_variance
    explained = toward_capacity - pods * toward_cost
    innovation = signal - (state.capacity - state.cost * pods)
    capacity_gain = toward_capacity / (explained + state.noise)
    cost_gain = np.where(steady < _LEARNING_UPDATES, toward_cost / (explained + state.noise), 0.0)
    # A = I - K H, then A P
    a, b, c, d = 1 - capacity_gain, capacity_gain * pods, -cost_gain, 1 + cost_gain * pods
    top_left = a * capacity_variance + b * state.covariance
    top_right = a * state.covariance + b * cost_variance
    bottom_left = c * capacity_variance + d * state.covariance
    bottom_right = c * state.covariance + d * cost_variance
    learned = State(
        state.capacity + capacity_gain * innovation,
        np.maximum(state.cost + cost_gain * innovation, kalman.COST_FLOOR),
        top_left * a + top_right * b + capacity_gain * capacity_gain * state.noise,
        top_left * c + top_right * d + capacity_gain * cost_gain * state.noise,
        bottom_left * c + bottom_right * d + cost_gain * cost_gain * state.noise,
        kalman.noise(state.noise, innovation, explained),
        pods,
        steady,
    )
    state = State(*(np.where(still, old, new) for old, new in zip(state, learned, strict=True)))
    return state, Estimate(state.capacity, state.cost, state.variance_of_cost)


class KalmanJoint(Kalman):
    """The form `kalman_joint`."""

    name = "kalman_joint"

    def init(self, signal: Array, cost: Array) -> State:
        """Start from a signal and an assumed cost of a pod."""
        return init(signal, cost)

    def learn(self, state: tuple[Array, ...], signal: Array, pods: Array, hold: Flags) -> tuple[State, Estimate]:
        """Learn from one second of every node."""
        return update(State(*state), signal, pods, hold, process_noise=self._process_noise)
