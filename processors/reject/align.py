"""Which direction of today is which of yesterday: singular vectors have no sign, and no order among equals.

A decomposition returns u or -u as it happens, and swaps directions whose strengths cross. Each flip turns a projection
over and would look like a spike. So each new direction takes the sign, and the history, of the old one that it
resembles: |u . u_old| above `rotation`. As the squares of one vector's coordinates in an orthonormal basis sum to at
most 1, above 1 / sqrt(2) no two can resemble the same: the pairing is one to one and needs no search. A direction that
resembles none is new, and what is known of its projections is void.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# The least rotation at which a pairing is one to one.
ONE_TO_ONE = 0.5**0.5


class Match(NamedTuple):
    """Where each direction comes from.

    Attributes:
        basis: (nodes, metrics, width), with signs as before.
        source: (nodes, width), column of the old direction that each new one resembles most.
        kept: (nodes, width), whether it resembles it enough to be the same.
    """

    basis: Array
    source: npt.NDArray[np.intp]
    kept: npt.NDArray[np.bool_]


def match(previous: Array, basis: Array, *, rotation: float) -> Match:
    """Pair directions with those of before and give them their signs.

    Columns of zeros resemble nothing, so a direction beyond the rank, then or now, is not kept.

    Args:
        previous: (nodes, metrics, width), orthonormal columns, or zeros beyond the rank.
        basis: The same of now, signs and order as they happen.
        rotation: Least |cosine| at which a direction counts as the same; at least `ONE_TO_ONE`.
    """
    overlap = np.matmul(previous.transpose(0, 2, 1), basis)
    size = np.abs(overlap)
    source = np.argmax(size, axis=1)
    cosine = np.take_along_axis(overlap, source[:, np.newaxis], axis=1)[:, 0]
    kept = np.abs(cosine) > rotation
    return Match(basis * np.where(cosine < 0, -1.0, 1.0)[:, np.newaxis], source, kept)
