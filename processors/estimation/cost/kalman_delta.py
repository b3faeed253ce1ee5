"""Cost of a pod from changes alone: what the signal loses when pods are added.

One-dimensional Kalman filter on change of signal = - cost * change of pods (CARICO dissertation, section 4.2.4, first
form, sign turned). The level cancels, so nothing is learned, and nothing goes astray, while the number of pods
stands still. While a node is held its last signal and pods are kept: the next difference spans the whole churn.
Capacity is no part of the filter; it is read off the last point as signal + cost * pods.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processors.estimation.cost import kalman
from processors.estimation.cost.kalman import Estimate, Kalman

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class State(NamedTuple):
    """One filter per node; each field is (nodes,).

    Attributes:
        cost: Signal that one pod takes.
        variance_of_cost: Squared standard error of the cost.
        noise: Variance of a change of signal.
        signal: At the last update that was not held.
        pods: At that update; NaN before it.
    """

    cost: Array
    variance_of_cost: Array
    noise: Array
    signal: Array
    pods: Array


def init(signal0: Array, cost0: Array) -> State:
    """Start from a signal and an assumed cost of a pod, both (nodes,) and NaN if not known."""
    start = kalman.start(cost0)
    signal = np.asarray(signal0, dtype=np.float64)
    return State(start.cost, start.variance_of_cost, start.noise, signal, start.pods)


def update(state: State, signal: Array, pods: Array, hold: Flags, *, process_noise: float) -> tuple[State, Estimate]:
    """Learn from one second of every node.

    Args:
        state: What the last call returned, or `init`.
        signal: (nodes,), capacity signal; NaN = missing.
        pods: (nodes,), running pods.
        hold: (nodes,), nodes in churn. They and saturated ones (signal 0) keep their state as it is.
        process_noise: Variance that the true cost gains per update.
    """
    still = kalman.held(signal, pods, hold)
    first = np.isnan(state.pods)
    change = np.where(first, 0.0, pods - state.pods)
    variance = state.variance_of_cost + process_noise
    innovation = np.where(first, 0.0, signal - state.signal + state.cost * change)
    explained = change * change * variance
    gain = -change * variance / (explained + state.noise)
    learned = State(
        np.maximum(state.cost + gain * innovation, kalman.COST_FLOOR),
        variance * state.noise / (explained + state.noise),
        np.where(first, state.noise, kalman.noise(state.noise, innovation, explained)),
        signal,
        pods,
    )
    state = State(*(np.where(still, old, new) for old, new in zip(state, learned, strict=True)))
    seen = np.where(np.isnan(state.pods), 0.0, state.pods)
    return state, Estimate(state.signal + state.cost * seen, state.cost, state.variance_of_cost)


class KalmanDelta(Kalman):
    """The form `kalman_delta`."""

    name = "kalman_delta"

    def init(self, signal: Array, cost: Array) -> State:
        """Start from a signal and an assumed cost of a pod."""
        return init(signal, cost)

    def learn(self, state: tuple[Array, ...], signal: Array, pods: Array, hold: Flags) -> tuple[State, Estimate]:
        """Learn from one second of every node."""
        return update(State(*state), signal, pods, hold, process_noise=self._process_noise)
