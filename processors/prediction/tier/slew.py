"""How fast what the Mid tier gets may rise: it falls at once and rises slowly.

What falls protects production pods, so it may not wait. What rises invites pods that stay, so a rise that a dip or a
burst of noise takes back within the hour is worth nothing. With w the wanted amount, r the bound and t the time since
the last check, the amount is min(w, last + r t): the greatest function below w that never rises faster than r.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.rows import table
from schemas.messages.prediction import FORMULAS

Array = NDArray[np.float64]
Times = NDArray[np.int64]

# `shipped` is Koordinator's to the byte, which has no such bound.
_IS_BOUND = np.array([formula != "shipped" for formula in FORMULAS])[:, np.newaxis]


class State(NamedTuple):
    """What each node lent last.

    Attributes:
        lent: (nodes, formulas, resources) cores and bytes; NaN: nothing was lent yet.
        at_us: (nodes,) when; 0: never.
    """

    lent: Array
    at_us: Times


def init(nodes: int) -> State:
    """Return the state of nodes that lent nothing yet."""
    return State(np.full((nodes, len(FORMULAS), 2), np.nan), np.zeros(nodes, dtype=np.int64))


def widen(arrays: Mapping[str, NDArray[Any]], prefix: str, nodes: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a stored state, with those of this one if it was stored before there was any."""
    if any(name.startswith(prefix) for name in arrays):
        return dict(arrays)
    return {**table.flatten(init(nodes), prefix), **arrays}


def update(
    state: State, wanted: Array, capacity: Array, at_us: Times, rise_per_hour: float, gap_seconds: float
) -> State:
    """Return what nodes lend now.

    Args:
        state: What the last call returned, or `init`.
        wanted: (nodes, formulas, resources) by the formulas, cores and bytes.
        capacity: (nodes, resources) the size that the bound is a share of.
        at_us: (nodes,) time of the check. One before the last allows no rise.
        rise_per_hour: Share of the capacity.
        gap_seconds: A longer time since the last check counts as this: nothing was seen in it.
    """
    hours = np.clip((at_us - state.at_us) / 1e6, 0.0, gap_seconds) / 3600.0
    highest = state.lent + rise_per_hour * capacity[:, np.newaxis] * hours[:, np.newaxis, np.newaxis]
    return State(np.where(_IS_BOUND, np.fmin(wanted, highest), wanted), at_us)
