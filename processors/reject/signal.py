"""PRONTO's reject signal: raised while a node's usage leaves the pattern it has had.

Each block is projected onto the directions in which the node has varied so far, each projection is watched for spikes,
and the spikes are weighed by the strength of their directions (CARICO dissertation, section 2.2.9):

    R = sum sigma_i |spike_i| / sum sigma_i        reject while R > theta

The sum is divided by its largest possible value, so R lies in [0, 1] and theta does not depend on units, memory or
the size of blocks. The paper's detector and constants are not known to us; the defaults are ours, with their reasons.

A block is judged before it is learned. Otherwise a spike that turns the directions would empty the very windows that
should find it. The value of a block is the median of each metric, so that what container events cause in 0.2 s of a
second does not count. Usage may be above 1; nothing is clipped.

Local, nodes do not know of each other, and the directions are each node's own. Federated, they are those of all nodes
together (`federated`), and only the means around which usage is projected are each node's own.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from processors.reject import align, federated, fpca, rank, spike
from processors.reject.federated import Shared
from schemas.messages.prediction import Subspace

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Params:
    """What the signal must know, with a reason for each default.

    Attributes:
        gamma: What is left of the amplitude after a block. At 0.99 energy is remembered for 50 blocks on average,
            longer than a window, so that a spike does not become the pattern while it lasts.
        width: Most directions of a node. FPCA wants no more than samples in a block, which are 10.
        rank: Directions at the start; the rule below takes it from there within a few blocks.
        low: Share of all strength below which the weakest direction is dropped; FPCA's 1 %.
        high: Share above which one more is taken; FPCA's 10 %.
        lag: Blocks in a window. At 30, that of the detector's published example, the deviation is known to 13 %.
        threshold: Deviations beyond which a projection is a spike. At 3.5 chance exceeds it in about 0.2 % of normal
            values, windows of 30 being what they are.
        influence: Weight of a spike in its window. At 0 a level that stays would be a spike for ever.
        floor: Departure in units of usage up to which nothing is a spike: 2 % of a resource hinder no job.
        theta: R above which jobs are rejected. Above a fifth of all strength one weak direction alone cannot raise it;
            `benchmarks.reject` tells hits and false alarms.
        rotation: Least |cosine| between blocks at which a direction counts as the same; see `align`.
        aligned: Whether signs and places of directions are followed. False is the dissertation's text taken
            literally, for comparison only.
        solver: See `fpca.update`.
        subspace: Whose directions usage is projected on: `local`, the node's own, or `global`, those of all nodes.
    """

    gamma: float = 0.99
    width: int = 10
    rank: int = 4
    low: float = 0.01
    high: float = 0.10
    lag: int = 30
    threshold: float = 3.5
    influence: float = 0.1
    floor: float = 0.02
    theta: float = 0.2
    rotation: float = align.ONE_TO_ONE
    aligned: bool = True
    solver: fpca.Solver = "eigh"
    subspace: Literal["local", "global"] = "local"

    def __post_init__(self) -> None:
        """Refuse what would never work.

        Raises:
            ValueError: A share is outside 0..1, a window has no deviation, or a pairing would not be one to one.
        """
        if self.lag < 2:
            raise ValueError(f"lag is {self.lag} blocks; a deviation takes 2")
        for name in ("gamma", "low", "high", "influence", "theta"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}; a share is 0 to 1")
        if not align.ONE_TO_ONE <= self.rotation <= 1:
            raise ValueError(f"rotation is {self.rotation}; a cosine of one-to-one pairs is 0.7072 to 1")


class State(NamedTuple):
    """What is known of each node: its directions, and the windows of their projections."""

    directions: fpca.State
    windows: spike.State


class Output(NamedTuple):
    """What a block says.

    Attributes:
        score: (nodes,), R, 0..1; missing for a node without a known value, or without a full window yet.
        reject: (nodes,), whether jobs should go elsewhere; never while the score is missing.
        rank: (nodes,), directions in use; local: after the block.
        spikes: (nodes, width), 1, -1 or 0 per direction in use before the block, strongest first; 1 and -1 are
            opposite, but neither of them is more usage.
        strength: (nodes, width), singular values that weighed the spikes.
    """

    score: Array
    reject: npt.NDArray[np.bool_]
    rank: npt.NDArray[np.int64]
    spikes: npt.NDArray[np.int8]
    strength: Array


def init(nodes: int, metrics: int, *, params: Params) -> State:
    """Return the state of nodes never seen."""
    width = min(params.width, metrics)
    return State(
        fpca.init(nodes, metrics, width=width, rank=min(params.rank, width)),
        spike.init(nodes, width, lag=params.lag),
    )


def update(state: State, block: Array, *, params: Params, shared: Shared | None = None) -> tuple[State, Output]:
    """Judge a block of each node, then learn it; which nodes share a call does not change the result.

    A missing metric counts as its mean. A node without any known value keeps its state, and has no score. Federated, no
    node has one before the directions of all nodes are known.

    Args:
        state: What the last call returned, or `init`.
        block: (nodes, samples, metrics), in units that may be compared, such as ratios; NaN = missing.
        params: Settings; the same for all calls on a state.
        shared: Directions of all nodes, in the global form; None: not known yet.
    """
    judged = spike.judged(state.windows)
    directions = state.directions if shared is None else federated.seen(state.directions, shared)
    projections = fpca.project(directions, _median(block))
    if params.subspace == "global" and shared is None:
        projections[:] = np.nan
    windows, spikes = spike.update(
        state.windows,
        projections,
        threshold=params.threshold,
        influence=params.influence,
        floor=params.floor,
    )
    used = np.arange(spikes.shape[1]) < directions.rank[:, np.newaxis]
    spikes = np.where(used, spikes, np.int8(0))
    scored = (judged & used).any(axis=1) & ~np.isnan(projections[:, 0])
    score = np.where(scored, _weighed(directions.sigma, used, spikes), np.nan)
    learned = _learned(State(state.directions, windows), block, params)
    ranks = learned.directions.rank if shared is None else directions.rank
    return learned, Output(score, score > params.theta, ranks, spikes, directions.sigma)


def adopt(state: State, before: Shared | None, message: Subspace, *, params: Params) -> tuple[State, Shared]:
    """Take over the directions of all nodes, in the global form; `before` are those in force."""
    shared, windows = federated.adopt(
        before,
        message,
        state.windows,
        width=state.windows.filtered.shape[1],
        ranks=federated.Ranks(params.rank, params.low, params.high),
        rotation=params.rotation,
    )
    return state._replace(windows=windows), shared


def _median(block: Array) -> Array:
    """Return the median (nodes, metrics) of the known samples; missing where none is known."""
    by_metric = np.array(block.transpose(0, 2, 1), order="C")
    valid = fpca.believed(by_metric)
    by_metric[~valid] = np.nan
    by_metric.sort(axis=2)  # missing values come last
    count = np.count_nonzero(valid, axis=2)
    node, metric = np.ogrid[: count.shape[0], : count.shape[1]]
    lower = by_metric[node, metric, np.maximum(count - 1, 0) // 2]
    upper = by_metric[node, metric, np.minimum(count // 2, by_metric.shape[2] - 1)]
    median: Array = 0.5 * (lower + upper)
    return median


def _weighed(sigma: Array, used: npt.NDArray[np.bool_], spikes: npt.NDArray[np.int8]) -> Array:
    """Return R (nodes,); while no direction has strength all count alike, or a first spike would not count."""
    weight = np.where((sigma[:, :1] > 0) | ~used, sigma, 1.0)
    total = np.add.accumulate(weight, axis=1)[:, -1]
    score: Array = np.add.accumulate(weight * np.abs(spikes), axis=1)[:, -1] / total
    return score


def _learned(state: State, block: Array, params: Params) -> State:
    directions = fpca.update(state.directions, block, gamma=params.gamma, solver=params.solver)
    samples = np.count_nonzero(np.any(fpca.believed(block), axis=2), axis=1)
    basis, sigma, ranks = rank.adjust(
        directions.basis, directions.sigma, directions.rank, low=params.low, high=params.high, most=samples
    )
    windows = state.windows
    if params.aligned:
        basis, source, kept = align.match(state.directions.basis, basis, rotation=params.rotation)
        if params.subspace == "local":
            windows = spike.follow(windows, source, kept)
    return State(directions._replace(basis=basis, sigma=sigma, rank=ranks), windows)
