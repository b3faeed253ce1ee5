"""Numbers of which some are missing."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def or_zero(values: Array) -> Array:
    """Return the values, any shape, with 0 for each that is NaN; others stay, also infinite ones.

    >>> or_zero(np.array([np.nan, 1.0, np.inf]))
    array([ 0.,  1., inf])
    """
    return np.where(np.isnan(values), 0.0, values)
