"""FPCA-Edge: the strongest directions in which a node's metrics vary, followed block by block.

A block B of samples is merged into the directions U with singular values S by svd_r([gamma U S, B]), where gamma < 1
forgets (CARICO dissertation, sections 2.2.5 to 2.2.7): amplitude falls by gamma and energy by gamma^2 a block, so S
settles at sigma^2 = b lambda / (1 - gamma^2) for a variance lambda and blocks of b samples.

Principal components need centred samples, and how a stream is centred the papers leave open. Here it is exact. With W
the decayed number of samples before, m their mean and C their scatter, and n, m' and D those of the block,

    C  <-  gamma^2 C + D + gamma^2 W n / (gamma^2 W + n) (m' - m)(m' - m)'

is the scatter around the common mean, as cross terms of deviations from a mean sum to nothing. So a block is its
samples around their own mean, and one more row for the step of the mean; without truncation U S^2 U' is the decayed
scatter around the decayed mean.

The eigenvectors of the scatter are the singular vectors, and much cheaper. Squaring halves the digits of what is weak:
a direction has about 16 - 2 log10(sigma_1 / sigma_i) of them. Directions below 1 % of the sum are dropped anyway, so
those that stay have eleven.
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Solver = Literal["eigh", "svd"]

# What is larger is missing: its square, summed, would be no number, and one node must not spoil a batch.
_LARGEST = 1e100
# No usage is measured so finely: what varies less is rounding, and has no direction.
_ROUNDING = 1e-9


class State(NamedTuple):
    """Directions, their strength, and the mean they are around.

    Attributes:
        basis: (nodes, metrics, width), orthonormal columns; those beyond a node's rank are 0.
        sigma: (nodes, width), singular values, largest first; 0 beyond the rank.
        rank: (nodes,), directions in use.
        mean: (nodes, metrics), decayed mean of the known samples; 0 before the first.
        weight: (nodes, metrics), decayed number of the known samples.
    """

    basis: Array
    sigma: Array
    rank: npt.NDArray[np.int64]
    mean: Array
    weight: Array


def init(nodes: int, metrics: int, *, width: int, rank: int) -> State:
    """Return the state before any sample: the first axes, without strength.

    Raises:
        ValueError: `rank` is above `width`, or `width` above the number of metrics.
    """
    if not 1 <= rank <= width <= metrics:
        raise ValueError(
            f"rank is {rank} and width {width} directions; {metrics} metrics need 1 <= rank <= width <= them"
        )
    basis = np.tile(np.eye(metrics, width), (nodes, 1, 1))
    basis[:, :, rank:] = 0.0
    unknown = np.zeros((nodes, metrics))
    return State(basis, np.zeros((nodes, width)), np.full(nodes, rank, dtype=np.int64), unknown, unknown.copy())


def update(state: State, block: Array, *, gamma: float, solver: Solver = "eigh") -> State:
    """Merge one block into each node's directions, at the rank the node has.

    A missing metric counts as its mean: it adds nothing to the scatter, and its mean stays. A node without any known
    value keeps its state. While nothing has varied yet the directions stay.

    Args:
        state: What the last call returned, or `init`.
        block: (nodes, samples, metrics), in units that may be compared, such as ratios; NaN, infinite or above 1e100 =
            missing.
        gamma: What is left of the amplitude after a block, 0..1.
        solver: `eigh` of the scatter, or `svd` of the rows for every digit of the weak directions.
    """
    valid = believed(block)
    rows, mean, weight = _centred(state, block, valid, gamma * gamma)
    amplitude = gamma * state.sigma[:, :, np.newaxis] * state.basis.transpose(0, 2, 1)
    strength, vectors = _decomposed(np.concatenate((amplitude, rows), axis=1), solver)
    width = state.sigma.shape[1]
    varied = strength[:, :1] > _ROUNDING
    used = (np.arange(width) < state.rank[:, np.newaxis]) & varied
    alive = np.any(valid, axis=(1, 2))[:, np.newaxis]
    turned = (alive & varied)[:, :, np.newaxis]
    return State(
        np.where(turned, np.where(used[:, np.newaxis], vectors[:, :, :width], 0.0), state.basis),
        np.where(alive, np.where(used, strength[:, :width], 0.0), state.sigma),
        state.rank,
        np.where(alive, mean, state.mean),
        np.where(alive, weight, state.weight),
    )


def believed(block: Array) -> npt.NDArray[np.bool_]:
    """Tell which values are known numbers, in the shape of `block`."""
    size: Array = np.abs(block)
    return size <= _LARGEST


def project(state: State, usage: Array) -> Array:
    """Return the coordinates (nodes, width) of usage (nodes, metrics) around the mean; a missing metric counts as mean.

    A node without any known metric has all missing.
    """
    valid = believed(usage)
    around = np.where(valid, usage - state.mean, 0.0)
    coordinates: Array = np.matmul(around[:, np.newaxis], state.basis)[:, 0]
    return np.where(np.any(valid, axis=1)[:, np.newaxis], coordinates, np.nan)


def _centred(state: State, block: Array, valid: npt.NDArray[np.bool_], decay: float) -> tuple[Array, Array, Array]:
    """Return the centred rows (nodes, samples + 1, metrics), the new mean and its weight (nodes, metrics)."""
    count = np.count_nonzero(valid, axis=1).astype(np.float64)
    # An accumulated sum adds in one order always; a plain one may depend on how many nodes there are.
    total = np.add.accumulate(np.where(valid, block, 0.0), axis=1)[:, -1]
    own = total / np.maximum(count, 1.0)
    before = decay * state.weight
    share = count / np.maximum(before + count, 1e-300)
    step = np.where(count > 0, own - state.mean, 0.0)
    rows = np.where(valid, block - own[:, np.newaxis], 0.0)
    between = np.sqrt(before * share) * step
    return np.concatenate((rows, between[:, np.newaxis]), axis=1), state.mean + share * step, before + count


def _decomposed(rows: Array, solver: Solver) -> tuple[Array, Array]:
    """Return singular values (nodes, k), largest first, and right singular vectors (nodes, metrics, k) of the rows."""
    if solver == "svd":
        _, strength, vectors = np.linalg.svd(rows, full_matrices=False)
        return strength, vectors.transpose(0, 2, 1)
    squares, right = np.linalg.eigh(np.matmul(rows.transpose(0, 2, 1), rows))  # weakest first, zeros slightly negative
    return np.sqrt(np.maximum(squares[:, ::-1], 0.0)), right[:, :, ::-1]
