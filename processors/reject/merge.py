"""Many nodes' directions in one: three ways to merge two subspaces, and three orders to merge many.

All three ways compute svd_r([l1 U1 S1, l2 U2 S2]) (CARICO dissertation, section 2.4). `subspace.merge_basic` decomposes
just that, `qr` decomposes its triangular factor, and `subspace.merge_fast` a small block; they give one result.

PRONTO's aggregators merge pairwise, level by level (DASM: CARICO dissertation, section 2.2.8); CARICO's one queue
merges one after another; `flat` decomposes all at once. At full rank the order does not matter. Truncated, every merge
loses what lies outside the directions it keeps, so the first singular value comes out too small: least so from `flat`,
which truncates once, and most from `tree`. `federated` keeps every direction and uses `tree`; the others are here as
references that it is held against.
"""

import numpy as np
import numpy.typing as npt

from processors.model import subspace
from processors.rows import table

Array = npt.NDArray[np.float64]


def qr(left: subspace.State, right: subspace.State, *, weights: tuple[float, float], rank: int) -> subspace.State:
    """Merge two states node by node as `subspace.merge_basic` does, by way of a triangular factor.

    Args:
        left: Subspaces of rank r1.
        right: Subspaces of rank r2 on the same nodes and features.
        weights: Factors of the two amplitudes.
        rank: Directions to keep, at most r1 + r2 and the number of features.
    """
    both = np.concatenate((weights[0] * _amplitudes(left), weights[1] * _amplitudes(right)), axis=2)
    outer, factor = np.linalg.qr(both)
    turn, sigma, _ = np.linalg.svd(factor, full_matrices=False)
    return subspace.State(np.matmul(outer, turn[:, :, :rank]), sigma[:, :rank])


def tree(states: subspace.State, *, rank: int) -> subspace.State:
    """Merge all nodes of a state into one, in pairs, level by level; of an odd number the last waits a level.

    Args:
        states: (nodes, ...), at least one node.
        rank: Directions to keep at each merge, at most those of `states`.

    Returns:
        A state of one node.
    """
    while states.sigma.shape[0] > 1:
        pairs = states.sigma.shape[0] // 2
        left, right, single = (
            table.take(states, np.arange(start, stop, 2))
            for start, stop in ((0, 2 * pairs), (1, 2 * pairs), (2 * pairs, states.sigma.shape[0]))
        )
        merged = subspace.merge_fast(left, right, weights=(1.0, 1.0), rank=rank)
        states = table.extend(merged, single)
    return states


def sequential(states: subspace.State, *, rank: int) -> subspace.State:
    """Merge all nodes of a state into one, one after another as from a queue; as `tree` otherwise."""
    merged = table.take(states, np.arange(1))
    for node in range(1, states.sigma.shape[0]):  # the order is the point
        following = table.take(states, np.arange(node, node + 1))
        merged = subspace.merge_fast(merged, following, weights=(1.0, 1.0), rank=rank)
    return merged


def flat(states: subspace.State, *, rank: int) -> subspace.State:
    """Merge all nodes of a state into one by one decomposition; as `tree` otherwise."""
    nodes, features, width = states.basis.shape
    beside = _amplitudes(states).transpose(1, 0, 2).reshape(1, features, nodes * width)
    basis, sigma, _ = np.linalg.svd(beside, full_matrices=False)
    return subspace.State(basis[:, :, :rank], sigma[:, :rank])


def _amplitudes(state: subspace.State) -> Array:
    scaled: Array = state.basis * state.sigma[:, np.newaxis]
    return scaled
