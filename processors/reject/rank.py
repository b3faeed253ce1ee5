"""How many directions a node needs: one more while the weakest still matters, one less when it does not.

FPCA's rule: with e = sigma_r / sum sigma_i over the r directions in use (singular values, not their squares), above
`high` the rank grows by one and below `low` the last direction is dropped. A new direction is the next axis e_(r+1),
made orthonormal to the others, without strength. Published code takes the axis after that one, and keeps the
triangular factor of the decomposition instead of the orthonormal one, so this follows the rule.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]

# Squared length of what is left of an axis, below which it counts as lying within the directions. Rounding is divided
# by that length, so this also bounds it: directions stay orthonormal to 1e-12.
_NOTHING = 1e-6


def adjust(
    basis: Array, sigma: Array, rank: Ranks, *, low: float, high: float, most: Ranks
) -> tuple[Array, Array, Ranks]:
    """Grow or shrink each node's rank by at most one direction; takes and gives what `fpca.State` holds.

    Where nothing has varied yet the rank stays.

    Args:
        basis: (nodes, metrics, width), columns beyond the rank 0.
        sigma: (nodes, width), largest first, 0 beyond the rank.
        rank: (nodes,), 1..width.
        low: Share of the weakest direction below which it is dropped.
        high: Share of the weakest direction above which one more is taken.
        most: (nodes,), samples of the node's newest block: no more directions than that. At 0 the rank stays.
    """
    total = np.add.accumulate(sigma, axis=1)[:, -1]
    weakest = np.take_along_axis(sigma, rank[:, np.newaxis] - 1, axis=1)[:, 0]
    share = np.divide(weakest, total, out=np.full_like(total, np.nan), where=total > 0)
    drop = (share < low) & (rank > 1) & (most > 0)
    grow = (share > high) & (rank < np.minimum(most, sigma.shape[1]))
    changed = rank - drop + grow
    used = np.arange(sigma.shape[1]) < changed[:, np.newaxis]
    basis = np.where(used[:, np.newaxis], basis, 0.0)
    rows = np.flatnonzero(grow)
    basis[rows, :, rank[rows]] = _next_axis(basis[rows], rank[rows])
    return basis, np.where(used, sigma, 0.0), changed


def _next_axis(basis: Array, rank: Ranks) -> Array:
    """Return a unit vector (nodes, metrics) orthogonal to each basis, near the axis after its rank.

    An axis that lies within the directions leaves nothing; then it is the axis of which most is left. Lengths left
    sum to metrics - rank, so that is at least 1 / metrics.
    """
    nodes = np.arange(len(rank))
    left = 1.0 - np.add.accumulate(basis * basis, axis=2)[:, :, -1]
    axis = np.where(left[nodes, rank] > _NOTHING, rank, np.argmax(left, axis=1))
    vector = np.zeros(basis.shape[:2])
    vector[nodes, axis] = 1.0
    inside = np.matmul(vector[:, np.newaxis], basis)
    vector -= np.matmul(inside, basis.transpose(0, 2, 1))[:, 0]
    length: Array = np.add.accumulate(vector * vector, axis=1)[:, -1:] ** 0.5
    return vector / length
