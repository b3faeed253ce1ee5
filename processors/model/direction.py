"""The one direction in which usage grows: size and first eigenvector of a second moment.

Usage lies in [0, 1], so the second moment has no negative entry and its first eigenvector none of mixed sign
(Perron-Frobenius): the expected workload is a vector s u with u >= 0 and s = sqrt(lambda1), the singular value. That s
is in units of usage is what CARICO dissertation, fig 3.1 draws; its eq 3.10 writes sqrt(sigma1) instead. How well one
direction describes usage is measured by the gap lambda2 / lambda1 (near 1: any direction in a plane would do as well,
and LAPACK picks one) and by the explained share lambda1 / trace.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_NOISE = 1e-9
_ABOVE = 1e-13  # of the first eigenvalue, above it; its own rounding is a hundredth of that
_ITERATIONS = 2


class Direction(NamedTuple):
    """Expected workload of each node, and how far to trust it.

    Attributes:
        size: (nodes,), length of the expected workload, in ratios; 0 without usage.
        vector: (nodes, features), unit vector with a non-negative sum.
        gap: (nodes,), second over first eigenvalue, 0..1.
        explained: (nodes,), first eigenvalue over the sum of all, 0..1.
    """

    size: Array
    vector: Array
    gap: Array
    explained: Array


def leading(moment: Array) -> Direction:
    """Find the leading direction of each node's moment.

    A zero moment has size 0, all features alike, gap 1, explained 0. A moment with a NaN has all missing.

    Args:
        moment: (nodes, features, features), symmetric, positive semidefinite up to rounding.

    >>> leading(np.array([[[0.5, 0.1], [0.1, 0.2]]])).size.round(10)
    array([0.7282016])
    """
    features = moment.shape[-1]
    missing = np.any(np.isnan(moment), axis=(1, 2))
    moment = np.where(missing[:, np.newaxis, np.newaxis], 0.0, moment)
    values = np.linalg.eigvalsh(moment)
    first = np.maximum(values[:, -1], 0.0)
    second = np.maximum(values[:, -2], 0.0) if features > 1 else np.zeros_like(first)
    idle = first == 0
    divisor = np.where(idle, 1.0, first)
    vector = _vector(moment, divisor)
    # An accumulated sum adds in one order always; a plain one may not.
    vector = vector * np.where(np.add.accumulate(vector, axis=1)[:, -1:] < 0, -1.0, 1.0)
    vector = np.where((vector < 0) & (vector > -_NOISE), 0.0, vector)
    trace = np.add.accumulate(np.diagonal(moment, axis1=1, axis2=2), axis=1)[:, -1]
    # No less than the first eigenvalue, unless the moment is no second moment.
    explained = first / np.where(idle, 1.0, np.maximum(trace, first))
    return Direction(
        np.where(missing, np.nan, np.sqrt(first)),
        np.where(missing[:, np.newaxis], np.nan, np.where(idle[:, np.newaxis], features**-0.5, vector)),
        np.where(missing, np.nan, np.where(idle, 1.0, second / divisor)),
        np.where(missing, np.nan, np.where(idle, 0.0, explained)),
    )


def _vector(moment: Array, first: Array) -> Array:
    """Return the unit eigenvectors (nodes, features) of the first eigenvalues (nodes,), by inverse iteration.

    All vectors of all nodes would take LAPACK as long again as the eigenvalues did. Shifted by a little more than its
    first eigenvalue a moment is definite, so that elimination needs no pivots. Each iteration multiplies the error by
    1e-13 over the gap. The start is perpendicular to no vector of positive or of rational entries.
    Nodes are last, so that inner loops are long and each node's arithmetic is its own.
    """
    features = moment.shape[-1]
    factors = -np.ascontiguousarray((moment / first[:, np.newaxis, np.newaxis]).transpose(1, 2, 0))
    factors[range(features), range(features)] += 1.0 + _ABOVE
    for pivot in range(features):
        below = factors[pivot + 1 :, pivot] / factors[pivot, pivot]
        factors[pivot + 1 :, pivot + 1 :] -= below[:, np.newaxis] * factors[pivot, pivot + 1 :]
        factors[pivot + 1 :, pivot] = below
    vector = np.tile(np.sqrt(np.arange(2.0, features + 2))[:, np.newaxis], len(moment))
    for _ in range(_ITERATIONS):
        for row in range(features):
            vector[row + 1 :] -= factors[row + 1 :, row] * vector[row]
        vector /= factors[range(features), range(features)]
        for row in reversed(range(features)):
            vector[:row] -= factors[row, :row] * vector[row]
        vector /= np.sqrt(np.add.accumulate(vector * vector)[-1])
    return vector.T
