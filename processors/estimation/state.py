"""The state of each node between its seconds, and what the fold of a second reads of the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.decode import COLUMNS
from processors.estimation import level, resource
from processors.estimation.cost import least_squares
from processors.estimation.variant import Variant
from schemas.settings import Settings

Array = NDArray[np.float64]

RESOURCES = ("cpu", "memory")
_NEEDED: Mapping[str, int] = {name: column for column, name in enumerate(resource.METRICS)}


@dataclass(frozen=True)
class Params:
    """What the chain reads of the settings."""

    settings: Settings
    variant: Variant

    @property
    def features(self) -> tuple[str, ...]:
        """Rows of the model."""
        return self.variant.features

    @property
    def resources(self) -> list[int]:
        """Columns of cpu and memory among the features."""
        return [self.features.index(name) for name in RESOURCES]

    @property
    def smoothed(self) -> Mapping[str, int]:
        """Column of each metric that is smoothed: all if smoothed rows are published, else what features need."""
        return COLUMNS if self.settings.smoothing.publish else _NEEDED


class State(NamedTuple):
    """The state of nodes; every array has a leading node axis.

    `taken` is the usage (nodes, features) that pods take by the node's own evidence, `counted` its pods, both weighed
    by how much evidence there is; `level` is the used share (nodes, resources) of what pods may have, `assumed`
    the cost (nodes, features) that is assumed of a pod. `kalman` is
    the estimator's. Of the newest block alone: `usage` (nodes, features), smoothed; `cores` (nodes,); `running` and
    `waiting` (nodes,), cores in use, and those that were wanted beyond; `full` (nodes,), no CPU was idle; `settling`
    (nodes,); `quiet_us` (nodes,), last time without churn; `held` (nodes,), nothing was learned from it; and the
    fields of `limit.Limits`.
    """

    smoothing: tuple[Array, ...]  # of the form in force, as the next and `kalman`
    model: tuple[Array, ...]
    cost: least_squares.State
    kalman: tuple[Array, ...]
    moment: Array
    taken: Array
    counted: Array
    sizes: Array
    pods: Array
    at_us: NDArray[np.int64]
    changed_us: NDArray[np.int64]
    seen: NDArray[np.bool_]
    usage: Array
    cores: Array
    running: Array
    waiting: Array
    full: NDArray[np.bool_]
    settling: NDArray[np.bool_]
    quiet_us: NDArray[np.int64]
    held: NDArray[np.bool_]
    level: level.State
    assumed: Array
    amount: Array
    soaked: Array
    queueing: Array
    reserved: Array
    most: Array


def init(nodes: int, params: Params) -> State:
    """Return the state of nodes never seen."""
    size = len(params.features)
    return State(
        smoothing=params.variant.smoothing.init(nodes, len(params.smoothed)),
        model=params.variant.model.init(nodes, size),
        cost=least_squares.init(nodes, size),
        kalman=params.variant.estimator.init(np.ones(nodes), np.ones(nodes)),
        moment=np.zeros((nodes, size, size)),
        taken=np.zeros((nodes, size)),
        counted=np.zeros(nodes),
        sizes=np.ones((nodes, size)),
        pods=np.zeros(nodes),
        at_us=np.zeros(nodes, dtype=np.int64),
        changed_us=np.zeros(nodes, dtype=np.int64),
        seen=np.zeros(nodes, dtype=np.bool_),
        usage=np.full((nodes, size), np.nan),
        cores=np.ones(nodes),
        running=np.full(nodes, np.nan),
        waiting=np.zeros(nodes),
        full=np.zeros(nodes, dtype=np.bool_),
        settling=np.zeros(nodes, dtype=np.bool_),
        quiet_us=np.zeros(nodes, dtype=np.int64),
        held=np.zeros(nodes, dtype=np.bool_),
        level=level.init(nodes, len(RESOURCES)),
        assumed=np.full((nodes, size), np.nan),
        amount=np.ones((nodes, len(RESOURCES))),
        soaked=np.ones(nodes),
        queueing=np.zeros(nodes),
        reserved=np.zeros((nodes, len(RESOURCES))),
        most=np.full(nodes, float(params.settings.estimate.max_pods)),
    )
