"""What the pods of each row have together: a row is a node, or one class of pods on a node.

Pods come as one flat array for all rows, with the row that each belongs to beside it. Pods are added in the order in
which they come, so a row's sum does not depend on which other rows there are.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.float64, np.int64)

UNBOUND = -1


def add(values: NDArray[Number], row: NDArray[np.intp], rows: int) -> NDArray[Number]:
    """Add the pods of each row.

    Args:
        values: (pods, ...), floats or integers; NaN makes the whole sum NaN.
        row: (pods,) row of each pod; `UNBOUND`, or any below 0: it belongs to none and is left out.
        rows: How many rows there are.

    Returns:
        (rows, ...) in the type of `values`; 0 for a row without pods.

    Raises:
        ValueError: A row is `rows` or above.

    >>> add(np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), 3)
    array([2., 5., 0.])
    """
    if row.size and row.max() >= rows:
        raise ValueError(f"row {row.max()} of a pod: there are {rows} rows, the last is {rows - 1}")
    total = np.zeros((rows, *values.shape[1:]), dtype=values.dtype)
    bound = row >= 0
    np.add.at(total, row[bound], values[bound])
    return total
