"""Capacity and cost by two coupled one-dimensional Kalman filters, cost first.

CARICO dissertation, section 4.2.4, third form, sign turned. If both filters explain the same residual of
signal = capacity - cost * pods, it is explained twice, and at a constant number of pods the cost runs away. So
cost learns from changes of pods only (`kalman_delta`), and capacity then follows signal + cost * pods. When the cost is
corrected, capacity moves with it so that the pair still explains the signal before the change.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processors.estimation.cost import kalman, kalman_delta
from processors.estimation.cost.kalman import Estimate, Kalman

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class State(NamedTuple):
    """Two filters per node; each field is (nodes,).

    Attributes:
        cost: Signal that one pod takes; this and the next four are the state of `kalman_delta`.
        variance_of_cost: Squared standard error of the cost.
        change_noise: Variance of a change of signal.
        signal: At the last update that was not held.
        pods: At that update; NaN before it.
        capacity: Signal without pods.
        capacity_variance: Of the capacity.
        noise: Variance of the signal.
    """

    cost: Array
    variance_of_cost: Array
    change_noise: Array
    signal: Array
    pods: Array
    capacity: Array
    capacity_variance: Array
    noise: Array


def init(signal0: Array, cost0: Array) -> State:
    """Start from a signal and an assumed cost of a pod, both (nodes,) and NaN if not known."""
    delta = kalman_delta.init(signal0, cost0)
    return State(
        *delta,
        np.where(np.isnan(signal0), 0.0, signal0),
        np.full_like(delta.cost, kalman.CAPACITY_VARIANCE),
        np.full_like(delta.cost, kalman.NOISE),
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
    delta = kalman_delta.State(state.cost, state.variance_of_cost, state.change_noise, state.signal, state.pods)
    delta, learned = kalman_delta.update(delta, signal, pods, hold, process_noise=process_noise)
    before = np.where(np.isnan(state.pods), 0.0, state.pods)
    expected = state.capacity + (delta.cost - state.cost) * before
    variance = state.capacity_variance + process_noise
    innovation = signal + delta.cost * pods - expected
    gain = variance / (variance + state.noise)
    state = State(
        *delta,
        np.where(still, state.capacity, expected + gain * innovation),
        np.where(still, state.capacity_variance, variance * state.noise / (variance + state.noise)),
        np.where(still, state.noise, kalman.noise(state.noise, innovation, variance)),
    )
    return state, Estimate(state.capacity, learned.cost, learned.variance_of_cost)


class KalmanDual(Kalman):
    """The form `kalman_dual`."""

    name = "kalman_dual"

    def init(self, signal: Array, cost: Array) -> State:
        """Start from a signal and an assumed cost of a pod."""
        return init(signal, cost)

    def learn(self, state: tuple[Array, ...], signal: Array, pods: Array, hold: Flags) -> tuple[State, Estimate]:
        """Learn from one second of every node."""
        return update(State(*state), signal, pods, hold, process_noise=self._process_noise)
