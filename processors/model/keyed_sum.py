"""The cluster's workload: the sum of every node's last moment, in absolute units.

The dissertation merges each arriving local model with weights N - 1 : 1 (CARICO dissertation, section 4.3), so a node
that reports twice as often counts twice, a repeated message counts again, and a dead node lingers. Summing the last
value of each node is exact at any rate, does not mind repetition or order, and a dead node is simply not in the sum.
Ratios of unlike machines cannot be added, so a node's moment C is brought to cores and bytes first, by the congruence
D C D with D = diag(sizes); a node reads the cluster's G as D^-1 G D^-1.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def total(moments: Array, sizes: Array, alive: npt.NDArray[np.bool_]) -> Array:
    """Add the moments of all live nodes in absolute units.

    Nodes are added one after another along their axis, so equal inputs give equal bits.

    Args:
        moments: (nodes, features, features), each node's last moment of ratios; ignored where not alive.
        sizes: (nodes, features), what a ratio of 1 is: cores, bytes, 1 for a plain ratio.
        alive: (nodes,), nodes that count.

    Returns:
        The sum (features, features), exactly symmetric if the moments are; zero without a live node.
    """
    if not alive.any():
        return np.zeros(moments.shape[1:])
    summed: Array = np.add.accumulate(absolute(moments[alive], sizes[alive]), axis=0)[-1]
    return summed


def absolute(moments: Array, sizes: Array) -> Array:
    """Return the moments (nodes, features, features) in cores and bytes; takes what `total` does."""
    scaled: Array = moments * _scale(sizes)
    return scaled


def congruent(total_over_weight: Array, sizes: Array) -> Array:
    """Return the cluster's mean moment as each node sees it, in ratios of its own sizes.

    Args:
        total_over_weight: (features, features), the sum over its number of nodes, in absolute units.
        sizes: (nodes, features), above 0, as in `total`.

    Returns:
        (nodes, features, features).
    """
    seen: Array = total_over_weight / _scale(sizes)
    return seen


def triangle(matrix: Array) -> Array:
    """Return the upper triangle of a symmetric matrix row by row: all there is to send.

    >>> triangle(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    rows, columns = np.triu_indices(matrix.shape[-1])
    upper: Array = matrix[..., rows, columns]
    return upper


def from_triangle(values: npt.ArrayLike) -> Array:
    """Return the symmetric matrix whose upper triangle is given; the inverse of `triangle`.

    Raises:
        ValueError: The number of values is not that of a triangle.
    """
    upper = np.asarray(values, dtype=np.float64)
    features = int((2 * upper.size) ** 0.5)
    if features * (features + 1) // 2 != upper.size:
        raise ValueError(f"{upper.size} values are no triangle of a matrix: 1, 3, 6, 10 … would be")
    rows, columns = np.triu_indices(features)
    matrix = np.empty((features, features))
    matrix[rows, columns] = matrix[columns, rows] = upper
    return matrix


def _scale(sizes: Array) -> Array:
    return sizes[:, :, np.newaxis] * sizes[:, np.newaxis, :]
