"""Other ways and orders to merge subspaces, which `processors.reject.merge` is held against.

`qr` computes svd_r([l1 U1 S1, l2 U2 S2]) as `subspace.merge_basic` does (CARICO dissertation, section 2.4), by way of a
triangular factor. `sequential` merges one after another, as CARICO's queue does; `flat` decomposes all at once, and so
truncates once.
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


def sequential(states: subspace.State, *, rank: int) -> subspace.State:
    """Merge all nodes of a state into one, one after another as from a queue; as `merge.tree` otherwise."""
    merged = table.take(states, np.arange(1))
    for node in range(1, states.sigma.shape[0]):  # the order is the point
        following = table.take(states, np.arange(node, node + 1))
        merged = subspace.merge_fast(merged, following, weights=(1.0, 1.0), rank=rank)
    return merged


def flat(states: subspace.State, *, rank: int) -> subspace.State:
    """Merge all nodes of a state into one by one decomposition; as `merge.tree` otherwise."""
    nodes, features, width = states.basis.shape
    beside = _amplitudes(states).transpose(1, 0, 2).reshape(1, features, nodes * width)
    basis, sigma, _ = np.linalg.svd(beside, full_matrices=False)
    return subspace.State(basis[:, :, :rank], sigma[:, :rank])


def _amplitudes(state: subspace.State) -> Array:
    scaled: Array = state.basis * state.sigma[:, np.newaxis]
    return scaled
