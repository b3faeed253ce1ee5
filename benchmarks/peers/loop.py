"""Batched updates against a loop over one object a node: scikit-learn's IncrementalPCA, and filterpy's KalmanFilter.

Both sides compute the same result from the same numbers, and the benchmark checks it:

- IncrementalPCA subtracts the mean and does not decay. With batches of mean zero, and an elapsed time for which batch t
  has weight 1/t, our models do the same: then sigma * sqrt(samples) are its singular values, truncated or not.
- `kalman_joint` estimates the cost only near changes of pods, which are frequent here, and estimates the noise of the
  signal; filterpy gets that noise as an input.

The loops are as fast as possible: scikit-learn without checks of parameters and input, and filters whose matrices are
changed in place.
"""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation.cost import kalman_joint
from processors.model import direction, second_moment, subspace

Array = NDArray[np.float64]

SAMPLES, FEATURES, RANK = 10, 5, 3
_TAU, _PROCESS_NOISE = 10.0, 1e-4


class Compared(NamedTuple):
    """Result of a comparison: CPU microseconds per node and update, best of all updates, and the largest error."""

    ours_us: float
    peer_us: float
    error: float

    @property
    def ratio(self) -> float:
        """Speed of ours as a multiple of the peer's."""
        return self.peer_us / self.ours_us


class Clocked:
    """Minimum CPU time of several calls; the first call is a warm-up and does not count."""

    def __init__(self) -> None:
        """Start without any call."""
        self._spent: list[float] = []

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function and measure its CPU time."""
        began = time.process_time()
        result = function(*arguments)
        self._spent.append(time.process_time() - began)
        return result

    def per_node_us(self, nodes: int) -> float:
        """Return CPU microseconds of the fastest call, per node."""
        return min(self._spent[1:]) / nodes * 1e6


def batches(nodes: int, seconds: int, seed: int) -> Array:
    """Return usage (seconds, nodes, samples, features) that varies in three directions, mean zero in each batch."""
    random = np.random.default_rng(seed)
    directions = random.random((nodes, RANK, FEATURES)) * np.array([1.0, 0.5, 0.2])[:, None]
    usage = random.standard_normal((seconds, nodes, SAMPLES, RANK)) @ directions
    usage += 0.02 * random.standard_normal(usage.shape)
    centred: Array = usage - usage.mean(axis=2, keepdims=True)
    return centred


def elapsed(second: int, nodes: int) -> Array:
    """Return the time (nodes,) with which batch `second`, from 0, has the same weight as each earlier batch."""
    weight = 1 / (second + 1)
    return np.full(nodes, np.inf if second == 0 else -_TAU * np.log1p(-weight))


def pca(made: list[Any], usage: Array) -> None:
    """Update one IncrementalPCA a node; `usage` (nodes, samples, features) is overwritten."""
    for model, batch in zip(made, usage, strict=True):
        model.partial_fit(batch, check_input=False)


def analysers(nodes: int, rank: int) -> list[Any]:
    """Return one IncrementalPCA a node, without checks."""
    import_module("sklearn").set_config(assume_finite=True, skip_parameter_validation=True)
    incremental = import_module("sklearn.decomposition").IncrementalPCA
    return [incremental(n_components=rank, copy=False) for _ in range(nodes)]


def decomposed(made: list[Any], samples: int) -> tuple[Array, Array, Array]:
    """Return the result of IncrementalPCAs after `samples`, in our units: components, sigma and second moment."""
    components = np.stack([model.components_ for model in made])
    sigma = np.stack([model.singular_values_ for model in made]) / np.sqrt(samples)
    return components, sigma, np.einsum("nkf,nk,nkg->nfg", components, sigma**2, components)


def moments(nodes: int, seconds: int, seed: int = 1) -> Compared:
    """Compare the default model, with its first direction, to IncrementalPCA with all components."""

    def update(state: second_moment.State, usage: Array, passed: Array) -> tuple[second_moment.State, Any]:
        state, moment = second_moment.update(state, usage, passed, tau=_TAU)
        return state, direction.leading(moment)

    ours, peer = Clocked(), Clocked()
    state, made, leading = second_moment.init(nodes, FEATURES), analysers(nodes, FEATURES), None
    for second, usage in enumerate(batches(nodes, seconds, seed)):
        state, leading = ours.call(update, state, usage, elapsed(second, nodes))
        peer.call(pca, made, usage.copy())
    assert leading is not None
    components, sigma, theirs = decomposed(made, SAMPLES * seconds)
    cosine = np.abs(np.sum(components[:, 0] * leading.vector, axis=1))
    error = max(_error(state.moment, theirs), _error(leading.size, sigma[:, 0]), _error(cosine, np.ones(nodes)))
    return Compared(ours.per_node_us(nodes), peer.per_node_us(nodes), error)


def subspaces(nodes: int, seconds: int, seed: int = 2) -> Compared:
    """Compare the reference model, truncated to three directions, to IncrementalPCA with three components."""
    ours, peer = Clocked(), Clocked()
    state, made = subspace.init(nodes, FEATURES, rank=RANK), analysers(nodes, RANK)
    for second, usage in enumerate(batches(nodes, seconds, seed)):
        passed = elapsed(second, nodes)
        state, moment = ours.call(lambda *given: subspace.update(*given, tau=_TAU), state, usage, passed)
        peer.call(pca, made, usage.copy())
    _, sigma, theirs = decomposed(made, SAMPLES * seconds)
    error = max(_error(moment, theirs), _error(state.sigma, sigma))
    return Compared(ours.per_node_us(nodes), peer.per_node_us(nodes), error)


def filters(state: kalman_joint.State) -> list[Any]:
    """Return one KalmanFilter a node for capacity and cost, in the same state as ours."""
    make = import_module("filterpy.kalman").KalmanFilter
    made = []
    for capacity, cost, of_capacity, of_cost in zip(
        state.capacity, state.cost, state.capacity_variance, state.variance_of_cost, strict=True
    ):
        filter_ = make(dim_x=2, dim_z=1)
        filter_.x, filter_.P = np.array([[capacity], [cost]]), np.diag([of_capacity, of_cost])
        filter_.F, filter_.Q = np.eye(2), _PROCESS_NOISE * np.eye(2)
        filter_.H, filter_.R = np.array([[1.0, 0.0]]), np.zeros((1, 1))
        made.append(filter_)
    return made


def kalman(made: list[Any], signal: Array, pods: Array, noise: Array) -> None:
    """Update one KalmanFilter a node; the rest (nodes,)."""
    for filter_, measured, running, variance in zip(made, signal.tolist(), pods.tolist(), noise.tolist(), strict=True):
        filter_.H[0, 1] = -running
        filter_.R[0, 0] = variance
        filter_.predict()
        filter_.update(measured)


def estimators(nodes: int, seconds: int, seed: int = 3) -> Compared:
    """Compare the two-dimensional Kalman filter to filterpy's."""
    random = np.random.default_rng(seed)
    pods = random.integers(0, 20, (seconds, nodes)).astype(np.float64)
    signal = 10 - 0.3 * pods + 0.05 * random.standard_normal((seconds, nodes))
    still = np.zeros(nodes, dtype=np.bool_)
    # Both start from the same guess, near enough that the cost never reaches its floor, which filterpy does not have.
    state = kalman_joint.init(np.full(nodes, 9.5), np.full(nodes, 0.5))._replace(
        capacity_variance=np.ones(nodes), variance_of_cost=np.full(nodes, 0.01), pods=pods[0], steady=np.zeros(nodes)
    )
    made, ours, peer = filters(state), Clocked(), Clocked()
    error = 0.0
    for measured, running in zip(signal, pods, strict=True):
        noise = state.noise
        state, _ = ours.call(
            lambda *given: kalman_joint.update(*given, process_noise=_PROCESS_NOISE), state, measured, running, still
        )
        peer.call(kalman, made, measured, running, noise)
        x, p = np.stack([each.x[:, 0] for each in made]), np.stack([each.P for each in made])
        error = max(
            error,
            _error(np.stack([state.capacity, state.cost], axis=1), x),
            _error(np.stack([state.capacity_variance, state.covariance, state.variance_of_cost]), p[:, *_UPPER].T),
        )
    return Compared(ours.per_node_us(nodes), peer.per_node_us(nodes), error)


_UPPER = np.array([0, 0, 1]), np.array([0, 1, 1])


def _error(ours: Array, theirs: Array) -> float:
    """Return the largest difference, relative where numbers are above 1."""
    return float(np.max(np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1.0)))
