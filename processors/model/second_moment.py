"""What a node's workload looks like: the decaying second moment of its usage.

The dissertation keeps a truncated singular value decomposition (U, S) and merges each batch into it with square-root
weights (CARICO dissertation, eq 3.6). Without truncation B B' = wa U S^2 U' + wb Y'Y, so by induction (U, S) is the
eigendecomposition of

    C <- (1 - w) C + w Y'Y / b        w = 1 - exp(-elapsed / tau)

with the b complete rows of the batch Y. That needs no factorisation, does not care in which order samples come, and
C stays non-negative entry by entry. Dividing by the rows that are there makes a lost sample harmless; weighing by the
time elapsed makes an irregular report so. An infinite `elapsed` forgets all that was before.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class State(NamedTuple):
    """What was learned: `moment` (nodes, features, features), in squared usage, exactly symmetric."""

    moment: Array


def init(nodes: int, features: int) -> State:
    """Return the state before any sample: no usage."""
    return State(np.zeros((nodes, features, features)))


def update(state: State, batch: Array, elapsed: Array, *, tau: float) -> tuple[State, Array]:
    """Fold one batch of usage into each node's moment.

    Args:
        state: What the last call returned, or `init`.
        batch: (nodes, samples, features), ratios; a sample with any NaN is left out.
        elapsed: (nodes,), seconds since the node's last batch; infinite for its first; below 0 counts as 0.
        tau: Memory in seconds.

    Returns:
        The state, and the moment (nodes, features, features). A node without a complete
        sample, or without time elapsed, keeps its moment.
    """
    rows, count = complete(batch)
    total = products(rows)
    share = np.where(count > 0, weight(elapsed, tau=tau), 0.0)
    mean = (total / np.maximum(count, 1)).transpose(2, 0, 1)
    old, new = (1 - share)[:, np.newaxis, np.newaxis], share[:, np.newaxis, np.newaxis]
    moment = np.ascontiguousarray(old * state.moment + new * mean)
    return State(moment), moment


def products(rows: Array) -> Array:
    """Return the sum of each node's rows times themselves, (features, features, nodes), of (nodes, rows, features)."""
    # Nodes last, one row after another: long inner loops, and sums whose order does not depend on the batch.
    total = np.zeros((rows.shape[2], rows.shape[2], rows.shape[0]))
    for row in np.ascontiguousarray(rows.transpose(1, 2, 0)):
        total += row[:, np.newaxis] * row[np.newaxis, :]
    return total


def complete(batch: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the batch with its incomplete samples set to zero, and the complete ones' number per node (nodes,)."""
    missing = np.isnan(batch)
    if not missing.any():  # as nearly always
        return batch, np.full(batch.shape[0], batch.shape[1])
    whole = np.logical_not(missing.any(axis=2))
    return np.where(whole[:, :, np.newaxis], batch, 0.0), np.count_nonzero(whole, axis=1)


def weight(elapsed: Array, *, tau: float) -> Array:
    """Return the weight (nodes,) of what came in the last `elapsed` seconds, 0..1, against all that was before."""
    share: Array = -np.expm1(-np.maximum(elapsed, 0.0) / tau)
    return share


class SecondMoment:
    """The model `second_moment`."""

    name = "second_moment"

    def __init__(self, tau: float) -> None:
        """Forget with this time constant, in seconds."""
        self._tau = tau

    def init(self, nodes: int, features: int) -> State:
        """Return the state before any sample."""
        return init(nodes, features)

    def update(self, state: tuple[Array, ...], batch: Array, elapsed: Array) -> tuple[State, Array]:
        """Fold one batch of usage into each node's moment."""
        return update(State(*state), batch, elapsed, tau=self._tau)

    def of_moment(self, moment: Array) -> State:
        """Return the state of nodes with these moments."""
        return State(moment)
