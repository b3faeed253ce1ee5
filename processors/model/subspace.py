"""The dissertation's local model: the r strongest directions of usage, by iterative singular value decomposition.

A state (U, S) stands for the second moment U S^2 U'. A batch Y of b samples is merged as
svd_r([sqrt(wa) U S, sqrt(wb / b) Y']), the weights under a root because they act on energy (CARICO dissertation,
eq 3.6, with PRONTO's block update, section 2.2.5). The left singular vectors of that are the eigenvectors of it times
its transpose, wa U S^2 U' + wb / b Y'Y, a small matrix whatever the batch, and half the work. What is weaker than 1e-8
of the strongest direction is lost to rounding that way; usage has nothing so weak.

Two subspaces merge by svd_r([l1 U1 S1, l2 U2 S2]); the fast form decomposes a small block instead, since with
U2 = U1 Z + Q R

    [l1 U1 S1, l2 U2 S2] = [U1 Q] [ l1 S1  l2 Z S2 ]
                                  [   0    l2 R S2 ]

and [U1 Q] is orthonormal. The second weight belongs on both blocks of the right column, and R takes the lower rows:
published code gets both wrong. Truncation leaves a moment that may have negative entries, so signs of U mean little.
Singular vectors are unique only up to sign, and not at all among equal singular values: compare moments, never U.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from processors.model import second_moment

Array = npt.NDArray[np.float64]


class State(NamedTuple):
    """Directions and their strength.

    Attributes:
        basis: (nodes, features, rank), orthonormal columns.
        sigma: (nodes, rank), singular values, largest first, in units of usage.
    """

    basis: Array
    sigma: Array


def init(nodes: int, features: int, *, rank: int) -> State:
    """Return the state before any sample: no strength, and the first unit vectors.

    Raises:
        ValueError: `rank` is above the number of features.
    """
    if not 1 <= rank <= features:
        raise ValueError(f"rank is {rank} directions; {features} features have 1 to {features}")
    return State(np.tile(np.eye(features, rank), (nodes, 1, 1)), np.zeros((nodes, rank)))


def update(state: State, batch: Array, elapsed: Array, *, tau: float) -> tuple[State, Array]:
    """Merge one batch of usage into each node's subspace; takes and returns what `second_moment.update` does.

    Args:
        state: What the last call returned, or `init`.
        batch: (nodes, samples, features), ratios; a sample with any NaN is left out.
        elapsed: (nodes,), seconds since the node's last batch; infinite for its first.
        tau: Memory in seconds.

    Returns:
        The state, and the moment (nodes, features, features). A node without a complete
        sample, or without time elapsed, keeps its state.
    """
    before = moment(state)
    _, after = second_moment.update(second_moment.State(before), batch, elapsed, tau=tau)
    learned = np.any(after != before, axis=(1, 2))[:, np.newaxis]
    directions = of_moment(after, rank=state.sigma.shape[1])
    state = State(
        np.where(learned[:, :, np.newaxis], directions.basis, state.basis),
        np.where(learned, directions.sigma, state.sigma),
    )
    return state, moment(state)


def moment(state: State) -> Array:
    """Return the second moment U S^2 U' (nodes, features, features) that a state stands for, exactly symmetric."""
    return np.ascontiguousarray(second_moment.products(_amplitudes(state).transpose(0, 2, 1)).transpose(2, 0, 1))


def of_moment(moment: Array, *, rank: int) -> State:
    """Return the state of the strongest directions of moments (nodes, features, features); the inverse of `moment`."""
    strength, basis = np.linalg.eigh(moment)  # weakest first; rounding makes those of no strength slightly negative
    sigma = np.sqrt(np.maximum(strength[:, ::-1], 0.0))
    return State(np.ascontiguousarray(basis[:, :, ::-1][:, :, :rank]), np.ascontiguousarray(sigma[:, :rank]))


def merge_basic(first: State, second: State, *, weights: tuple[float, float], rank: int) -> State:
    """Merge two states node by node by decomposing both side by side; the oracle of `merge_fast`.

    Args:
        first: Subspaces of rank r1.
        second: Subspaces of rank r2 on the same nodes and features.
        weights: Factors of the two amplitudes; energy is weighed by their squares.
        rank: Directions to keep, at most r1 + r2 and the number of features.
    """
    return _truncated(np.concatenate((weights[0] * _amplitudes(first), weights[1] * _amplitudes(second)), axis=2), rank)


def merge_fast(first: State, second: State, *, weights: tuple[float, float], rank: int) -> State:
    """Merge two states as `merge_basic` does, by decomposing a block of r1 + r2 rows."""
    split, width = first.sigma.shape[1], first.sigma.shape[1] + second.sigma.shape[1]
    overlap = np.matmul(first.basis.transpose(0, 2, 1), second.basis)
    outside, rest = np.linalg.qr(second.basis - np.matmul(first.basis, overlap))
    block = np.zeros((first.sigma.shape[0], split + rest.shape[1], width))
    block[:, range(split), range(split)] = weights[0] * first.sigma
    block[:, :split, split:] = weights[1] * overlap * second.sigma[:, np.newaxis]
    block[:, split:, split:] = weights[1] * rest * second.sigma[:, np.newaxis]
    small = _truncated(block, rank)
    turned = np.matmul(np.concatenate((first.basis, outside), axis=2), small.basis)
    # Where the second lies within the first, columns of no strength are made of rounding; the next merge needs them
    # orthonormal all the same. The strong ones come first and are left as they are, up to sign.
    return State(np.linalg.qr(turned).Q, small.sigma)


def _amplitudes(state: State) -> Array:
    return state.basis * state.sigma[:, np.newaxis]


def _truncated(matrix: Array, rank: int) -> State:
    basis, sigma, _ = np.linalg.svd(matrix, full_matrices=False)
    return State(basis[:, :, :rank], sigma[:, :rank])


class Subspace:
    """The model `subspace`."""

    name = "subspace"

    def __init__(self, tau: float, rank: int) -> None:
        """Forget with this time constant, in seconds; keep at most so many directions."""
        self._tau, self._rank = tau, rank

    def init(self, nodes: int, features: int) -> State:
        """Return the state before any sample."""
        return init(nodes, features, rank=min(self._rank, features))

    def update(self, state: tuple[Array, ...], batch: Array, elapsed: Array) -> tuple[State, Array]:
        """Merge one batch of usage into each node's subspace."""
        return update(State(*state), batch, elapsed, tau=self._tau)

    def of_moment(self, moment: Array) -> State:
        """Return the state of the strongest directions of these moments."""
        return of_moment(moment, rank=min(self._rank, moment.shape[1]))
