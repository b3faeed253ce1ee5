"""PRONTO federated: the directions of all nodes in one, on which each node's usage is then projected.

Every node follows its own directions U_i with strengths S_i around its own mean (`fpca`). Merging them level by level
(DASM: CARICO dissertation, section 2.2.8) gives the directions of the sum of U_i S_i^2 U_i', which is the scatter of
all nodes' samples, each around its node's own mean: levels of nodes differ and are no pattern that they have in common.
With as many directions kept as there are metrics no merge loses anything, so the order of merging matters to rounding
alone.

What a node projects on has the rank that FPCA's rule comes to at these strengths, and signs and places that follow
those of the directions before (`align`), so that the windows of projections stay those of their directions.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from processors.model import fair_share, subspace
from processors.reject import align, fpca, merge, spike
from schemas.messages.prediction import Subspace

Array = npt.NDArray[np.float64]

_MOST = 4.0


class Shared(NamedTuple):
    """Directions of all nodes, as `fpca.State` has one's: basis (1, metrics, width), sigma (1, width), rank (1,)."""

    basis: Array
    sigma: Array
    rank: npt.NDArray[np.int64]


def merged(directions: fpca.State) -> subspace.State:
    """Return the directions of some nodes, at least one, in one; as many as there are metrics."""
    return merge.tree(subspace.State(directions.basis, directions.sigma), rank=directions.sigma.shape[1])


def bounded(directions: fpca.State, energy: float) -> fpca.State:
    """Return directions of some nodes of which none has more than `_MOST` times the mean energy of all nodes.

    Without it one node whose usage swings between nothing and all would turn the directions of everybody. `energy` is
    the mean sum of squared strengths; NaN: not known, no bound.
    """
    own = np.add.accumulate(directions.sigma**2, axis=1)[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = np.where(own > _MOST * energy, np.sqrt(_MOST * energy / own), 1.0)
    return directions._replace(sigma=directions.sigma * factor[:, np.newaxis])


def energy_of(message: Subspace) -> float:
    """Return the mean energy of a node in a message of all nodes; NaN: there are too few to compare."""
    if message.nodes < fair_share.LEAST_VOTERS:
        return math.nan
    return sum(sigma**2 for sigma in message.sigma) / message.nodes


def together(messages: Sequence[Subspace]) -> subspace.State:
    """Return the directions of several messages, at least one and all of the same metrics, in one."""
    size = len(messages[0].metrics)
    states = subspace.State(np.zeros((len(messages), size, size)), np.zeros((len(messages), size)))
    for row, message in enumerate(messages):
        rank = len(message.sigma)
        states.sigma[row, :rank] = message.sigma
        states.basis[row, :, :rank] = np.array(message.basis).reshape(rank, size).T
    return merge.tree(states, rank=size)


def numbers(state: subspace.State) -> dict[str, Any]:
    """Return the fields `sigma` and `basis` of a `Subspace`, of a state of one node."""
    return {"sigma": state.sigma[0].tolist(), "basis": state.basis[0].T.ravel().tolist()}


def adopt(
    before: Shared | None, message: Subspace, windows: spike.State, *, width: int, ranks: "Ranks", rotation: float
) -> tuple[Shared, spike.State]:
    """Take over the directions of all nodes.

    Args:
        before: Those in force.
        message: The new ones.
        windows: Of all nodes' projections on those in force.
        width: Most directions that a node follows.
        ranks: The rule for how many there are.
        rotation: As in `align.match`.

    Returns:
        The directions in force from here on, and the windows in their order; empty where a direction is new.
    """
    directions = together([message])
    sigma = directions.sigma[:, :width]
    rank = ranks.of(sigma[0])
    used = np.arange(width) < rank
    basis = np.where(used, directions.basis[:, :, :width], 0.0)
    shared = Shared(basis, np.where(used, sigma, 0.0), np.array([rank]))
    if before is None:
        return shared, spike.State(np.full_like(windows.filtered, np.nan))
    match = align.match(before.basis, basis, rotation=rotation)
    nodes = len(windows.filtered)
    followed = spike.follow(windows, np.repeat(match.source, nodes, axis=0), np.repeat(match.kept, nodes, axis=0))
    return shared._replace(basis=match.basis), followed


def seen(own: fpca.State, shared: Shared) -> fpca.State:
    """Return the directions of all nodes as each node sees them: around its own mean."""
    nodes = len(own.rank)
    return fpca.State(
        basis=np.repeat(shared.basis, nodes, axis=0),
        sigma=np.repeat(shared.sigma, nodes, axis=0),
        rank=np.repeat(shared.rank, nodes),
        mean=own.mean,
        weight=own.weight,
    )


class Ranks(NamedTuple):
    """FPCA's rule (`rank`): begin with `start` directions, drop the weakest below `low`, take one more above `high`.

    One more is taken only if it would not be dropped, so that the rule comes to an end.
    """

    start: int
    low: float
    high: float

    def of(self, sigma: Array) -> int:
        """Return the number of directions that the rule comes to, of singular values (width,), strongest first."""
        sums = np.add.accumulate(sigma)
        weak, strong = sigma < self.low * sums, sigma > self.high * sums
        rank = min(self.start, len(sigma))
        while rank > 1 and weak[rank - 1]:
            rank -= 1
        while rank < len(sigma) and strong[rank - 1] and not weak[rank]:
            rank += 1
        return rank
