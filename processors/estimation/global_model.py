"""The global model as one node sees it, and the cost that is assumed of a pod."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.model import fair_share, keyed_sum
from processors.model.fair_share import Share
from schemas.sections.estimation import Estimate

Array = NDArray[np.float64]

EVIDENT_PODS = 0.5  # less evidence than half a pod is no evidence of what a pod costs
REMEMBERED_US = 25 * 3600 * 1_000_000  # a job that runs once a day, and later than the day before
FADING_US = 600 * 1_000_000  # half-life
_DRAINING_US = 60 * 1_000_000  # half-life

_SMALL_COST = 1e-3
_MOST_ENERGY, _SOME_PODS = 4.0, 10.0  # of a node's moment: in means of all nodes, or of so many reference pods


class GlobalModel(NamedTuple):
    """The global model: mean second moment and mean cost of a pod, both in absolute units; None: not known.

    `fair` is the number of pods that a node has evidence of, in the mean over the `voters` among its `nodes` that have
    any; NaN: these are too few.
    """

    moment: Array | None = None
    cost: Array | None = None
    fair: float = math.nan
    nodes: int = 0
    voters: int = 0


class MeanPod(NamedTuple):
    """What a pod of the cluster took when nodes last had evidence of it, `at_us`; as in `GlobalModel`."""

    at_us: int
    cost: Array
    fair: float
    voters: int

    def dump(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return self._asdict() | {"cost": self.cost.tolist(), "fair": None if math.isnan(self.fair) else self.fair}

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "MeanPod":
        """Take over what `dump` returned.

        Raises:
            ValueError: It is none.
        """
        fair = math.nan if stored["fair"] is None else float(stored["fair"])
        return cls(int(stored["at_us"]), np.asarray(stored["cost"], dtype=np.float64), fair, int(stored["voters"]))


def remember(before: MeanPod | None, heard: GlobalModel, at_us: int) -> tuple[MeanPod | None, GlobalModel]:
    """Return what is remembered of the mean pod after a global model, and the model with what it lacks of that.

    Pods of jobs end, and what the next ones take is not learned again each time. While they drain they often take
    little, so what is remembered falls no faster than by half in a minute. What three nodes had evidence of, one or two
    cannot set aside: the mean pod takes as much, less what fades in ten minutes, or what they say, if that is more.

    Args:
        before: What is remembered.
        heard: The global model of that time.
        at_us: The time.
    """
    if before is not None:
        # A clock that was ahead makes nothing last longer.
        before = None if at_us - before.at_us > REMEMBERED_US else before._replace(at_us=min(before.at_us, at_us))
    if heard.cost is None:
        return before, heard if before is None else heard._replace(cost=before.cost, fair=before.fair)
    several, attested = (each is not None and each.voters >= fair_share.LEAST_VOTERS for each in (heard, before))
    if before is None or (several and not attested):
        return MeanPod(at_us, heard.cost, heard.fair, heard.voters), heard
    half_life = FADING_US if attested and not several else _DRAINING_US
    faded = before.cost * 2 ** (-max(at_us - before.at_us, 0) / half_life)
    if attested and not several:
        kept = before._replace(at_us=at_us, cost=np.maximum(faded, np.minimum(heard.cost, before.cost)))
        return kept, heard._replace(cost=np.maximum(heard.cost, kept.cost))
    return MeanPod(at_us, np.maximum(heard.cost, faded), heard.fair, heard.voters), heard


def assumed(sizes: Array, global_model: GlobalModel, resources: list[int], estimate: Estimate) -> Array:
    """Return the cost that is assumed of any pod, (nodes, features): the cluster's mean, else the reference pod's.

    Args:
        sizes: (nodes, features) what a ratio of 1 is.
        global_model: Global model in force.
        resources: Columns of cpu and memory.
        estimate: Settings, for the reference pod.
    """
    cpu, memory = resources
    prior = np.full(sizes.shape, _SMALL_COST)
    prior[:, cpu] = estimate.pod_cores / sizes[:, cpu]
    prior[:, memory] = estimate.pod_memory_bytes / sizes[:, memory]
    wanted = prior if global_model.cost is None else np.where(global_model.cost > 0, global_model.cost / sizes, prior)
    bounded: Array = np.clip(wanted, prior / 100, 1.0)
    return bounded


def contribution(pods: Array, taken: Array, global_model: GlobalModel) -> Share:
    """Bound what nodes contribute to the mean cost of a pod; see `fair_share`.

    Args:
        pods: (nodes,) pods that each has evidence of.
        taken: (nodes, features) what they take, in absolute units.
        global_model: Global model in force.
    """
    mean = np.full((1, taken.shape[1]), np.nan)
    if global_model.cost is not None and not math.isnan(global_model.fair):
        mean = np.where(global_model.cost > 0, global_model.cost, np.nan)[np.newaxis]
    return fair_share.bounded(pods, taken, mean, global_model.fair)


def regressed(taken: Array, counted: Array) -> Array:
    """Return what a pod takes by nodes' own regressions (nodes, features); 0: one has no evidence."""
    pods = counted[:, np.newaxis]
    return np.divide(taken, pods, out=np.zeros_like(taken), where=pods > EVIDENT_PODS)


def units(moment: Array, sizes: Array, global_model: GlobalModel, resources: list[int], estimate: Estimate) -> Array:
    """Return what a ratio of 1 counts for in the sum of moments, (nodes, features), so that no node has too much of it.

    Args:
        moment: (nodes, features, features) of ratios.
        sizes: (nodes, features) what a ratio of 1 is.
        global_model: Global model in force.
        resources: Columns of cpu and memory.
        estimate: Settings, for the reference pod.
    """
    if global_model.moment is None or global_model.nodes < fair_share.LEAST_VOTERS:
        return sizes
    most = np.full(sizes.shape[1], np.inf)
    some = _SOME_PODS * np.array([estimate.pod_cores, estimate.pod_memory_bytes])
    most[resources] = np.maximum(_MOST_ENERGY * np.diagonal(global_model.moment)[resources], some**2)
    return fair_share.sizes(moment, sizes, most)


def mixed(moment: Array, sizes: Array, global_model: GlobalModel, weight: float) -> Array:
    """Return nodes' moments (nodes, features, features) mixed with the cluster's, which has this weight."""
    if global_model.moment is None:
        return moment
    mixture: Array = (1.0 - weight) * moment + weight * keyed_sum.congruent(global_model.moment, sizes)
    return mixture
