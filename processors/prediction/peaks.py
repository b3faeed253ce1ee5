"""Every model's peak of every group of some nodes, and what the chosen one leaves to lower tiers.

Groups are the whole node, the priority classes of its pods, and what is in no pod; axes are (nodes, groups, models,
resources). Models that add up pods take what is in no pod for one more pod of the node.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction import statistic
from processors.prediction.models import borg, central, koordinator, sigma
from processors.prediction.tier import batch, mid, pod_sum
from schemas.messages.prediction import GROUPS
from schemas.sections.prediction import PEAK_MODELS, Predict

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

NODE, NONE, SYSTEM = GROUPS.index("node"), GROUPS.index("none"), GROUPS.index("system")
PROD = GROUPS.index("prod")
# Groups of the numbers that `priority.Priority` has for classes.
GROUP_OF_PRIORITY = np.array([NONE, PROD, GROUPS.index("mid"), GROUPS.index("batch"), GROUPS.index("free")])


class Pods(NamedTuple):
    """The pods of those nodes.

    Attributes:
        node: (pods,) index of its node.
        priority: (pods,) as `priority.Priority`.
        request: (pods, resources) cores and bytes.
        usage: (pods, resources) newest usage; NaN: not known.
        exclusive: (pods,) owns its cores.
        ending: (pods,) is being deleted.
        cold: (pods,) is too young to be predicted, and nothing was inherited.
        statistics: What is remembered of it.
    """

    node: Rows
    priority: NDArray[np.int8]
    request: Array
    usage: Array
    exclusive: NDArray[np.bool_]
    ending: NDArray[np.bool_]
    cold: NDArray[np.bool_]
    statistics: statistic.State


class Nodes(NamedTuple):
    """The nodes.

    Attributes:
        statistics: Of their groups, (nodes x groups) rows.
        capacity: (nodes, resources) what the machine has.
        allocatable: (nodes, resources) what of it Kubernetes gives to pods; the machine's where it has not said.
        usage: (nodes, resources) mean of the last five minutes; NaN: not known.
        system: (nodes, resources) the same of what is in no pod.
        calibrated: (nodes, groups, resources) peaks of that model.
    """

    statistics: statistic.State
    capacity: Array
    allocatable: Array
    usage: Array
    system: Array
    calibrated: Array


class Result(NamedTuple):
    """What is predicted.

    Attributes:
        peaks: (nodes, groups, models, resources) in the order of `PEAK_MODELS`; NaN: the model says nothing of it.
        requested: (nodes, resources) of prod pods.
        unpredicted: (nodes, resources) of those of them that are too young.
        reclaimable: (nodes, resources) by the chosen model.
        mid: (nodes, formulas, resources) in the order of `FORMULAS`.
        batch: (nodes, resources).
    """

    peaks: Array
    requested: Array
    unpredicted: Array
    reclaimable: Array
    mid: Array
    batch: Array


def grouped(whole: Array, by_pod: Array, node: Rows, group: Rows, told: NDArray[np.bool_]) -> Array:
    """Return usage (nodes, groups, resources): what pods of a class use together, and what is in no pod.

    A class without pods uses nothing; where nobody told which pods there are, only the whole node is known.
    """
    count = len(whole)
    rows = np.asarray(node * len(GROUPS) + group, dtype=np.intp)
    usage = pod_sum.add(np.nan_to_num(by_pod), rows, count * len(GROUPS)).reshape(count, len(GROUPS), 2)
    usage[:, SYSTEM] = np.maximum(whole - usage.sum(axis=1), 0.0)
    usage[~told] = np.nan
    usage[:, NODE] = whole
    return usage


class _Read(NamedTuple):
    """What is read of the statistics, once for all models.

    Attributes:
        percentile: (nodes, groups, resources).
        sigma: (nodes, groups, resources) peaks by N sigma.
        by_pod: (pods, resources) percentiles.
        told: (nodes,) somebody has said which pods there are.
    """

    percentile: Array
    sigma: Array
    by_pod: Array
    told: NDArray[np.bool_]


def predict(nodes: Nodes, pods: Pods, settings: Predict) -> Result:
    """Return everything that is predicted of some nodes."""
    count = len(nodes.capacity)
    read = _read(nodes, pods, settings)
    by_model = {
        "calibrated": nodes.calibrated,
        "n_sigma": read.sigma,
        "koordinator": read.percentile * (1.0 + _margin_percent(settings) / 100),
        **_by_pods(read, pods, settings),
    }
    peaks = np.stack([by_model[name] for name in PEAK_MODELS], axis=2)
    prod = np.isin(GROUP_OF_PRIORITY[pods.priority], (PROD, NONE)) & ~pods.ending
    asked = np.where(prod[:, None], pods.request, 0.0)
    requested = pod_sum.add(asked, pods.node, count)
    unpredicted = pod_sum.add(np.where(pods.cold[:, None], asked, 0.0), pods.node, count)
    warm = np.where(prod & ~pods.cold, pods.node, pod_sum.UNBOUND)
    own = central.peak(read.by_pod, pods.request, warm, count)
    seen = Seen(peaks[:, :, PEAK_MODELS.index(settings.model)], own, requested, unpredicted, read.told)
    reclaimable, lent = _lent(nodes, settings, seen, _shipped(nodes, pods, read, settings))
    held = batch.held(pods.request, pods.usage, pods.priority, pods.exclusive, pods.node, count)
    reserved = nodes.capacity - nodes.allocatable
    return Result(
        peaks,
        requested,
        unpredicted,
        reclaimable,
        lent,
        batch.allocatable(nodes.capacity, reserved, nodes.system, held),
    )


def _read(nodes: Nodes, pods: Pods, settings: Predict) -> _Read:
    shape = len(nodes.capacity), len(GROUPS), 2
    percentile = statistic.percentile(nodes.statistics, settings).reshape(shape)
    listed = np.bincount(pods.node, minlength=len(percentile)) > 0
    return _Read(
        percentile=percentile,
        sigma=sigma.peak(nodes.statistics.moments, n=settings.sigma).reshape(shape),
        by_pod=statistic.percentile(pods.statistics, settings),
        told=np.asarray(listed | ~np.isnan(percentile[:, SYSTEM]).any(axis=1)),
    )


def _shipped(nodes: Nodes, pods: Pods, read: _Read, settings: Predict) -> koordinator.Result:
    """Return what Koordinator's own predictors say."""
    own = koordinator.Pods(
        row=pods.node,
        priority=pods.priority,
        request=pods.request,
        percentile=read.by_pod,
        cold=pods.cold,
        ending=pods.ending,
    )
    parts = read.percentile[:, [SYSTEM, PROD, NONE]]
    return koordinator.predict(own, parts, nodes.allocatable, margin_percent=_margin_percent(settings))


def _margin_percent(settings: Predict) -> int:
    return round(settings.margin * 100)  # Koordinator has whole ones


def _by_pods(read: _Read, pods: Pods, settings: Predict) -> dict[str, Array]:
    """Return the models that add up pods; what is in no pod is one more of the node."""
    shape = read.percentile.shape
    row, rows = pods.node * len(GROUPS) + GROUP_OF_PRIORITY[pods.priority], shape[0] * len(GROUPS)

    def summed(by_class: Array, outside: Array) -> Array:
        found = by_class.reshape(shape)
        # Where nobody has told yet which pods there are, their sum is not the node: then outside is not known.
        found[:, SYSTEM] = outside
        found[:, NODE] = found[:, PROD : SYSTEM + 1].sum(axis=1)
        return found

    rates = summed(borg.peak(pods.request, row, rows, overcommit=settings.overcommit), np.zeros((shape[0], 2)))
    rates[:, SYSTEM] = np.nan
    rates[~read.told] = np.nan
    highs = summed(central.peak(read.by_pod, pods.request, row, rows), read.percentile[:, SYSTEM])
    sums = summed(
        sigma.peak_by_pods(pods.statistics.moments, pods.request, row, rows, n=settings.sigma), read.sigma[:, SYSTEM]
    )
    most = np.fmax(rates, highs)
    most[:, NODE] = np.maximum(rates[:, NODE], highs[:, NODE])
    return {
        "pods_n_sigma": np.fmax(read.sigma, sums),
        "borg_default": rates,
        "resource_central": highs,
        "max": most,
    }


class Seen(NamedTuple):
    """What reclaimable is made of.

    Attributes:
        chosen: (nodes, groups, resources) peaks of the chosen model.
        own: (nodes, resources) sum of the percentiles of the prod pods that are not too young.
        requested: (nodes, resources) of prod pods.
        unpredicted: (nodes, resources) of those of them that are too young.
        told: (nodes,) somebody has said which pods there are.
    """

    chosen: Array
    own: Array
    requested: Array
    unpredicted: Array
    told: NDArray[np.bool_]


def _lent(nodes: Nodes, settings: Predict, seen: Seen, shipped: koordinator.Result) -> tuple[Array, Array]:
    """Return reclaimable (nodes, resources), and Mid-tier allocatable (nodes, formulas, resources).

    A group on this node has not seen a pod that has just come with its workload's past, so the pods' own peaks count
    where they are higher. Nothing is reclaimed that the node itself will need.
    """
    threshold = np.array([settings.threshold_cpu, settings.threshold_memory])
    known = seen.requested - seen.unpredicted
    if settings.model == "koordinator":
        kept_back = (1.0 - settings.reclaim_ratio) * known
        reclaimable = np.maximum(np.nan_to_num(shipped.reclaimable) - kept_back, 0.0)
    else:
        peak = np.maximum(seen.chosen[:, PROD] + np.nan_to_num(seen.chosen[:, NONE]), seen.own)
        unbounded = np.full(2, np.inf)
        spare = mid.proposed(known, peak, np.maximum(known, 1.0), threshold=unbounded, reclaim=settings.reclaim_ratio)
        reclaimable = np.minimum(spare, np.nan_to_num(np.maximum(nodes.allocatable - seen.chosen[:, NODE], 0.0)))
    lent = np.minimum(reclaimable, nodes.allocatable * threshold)
    free = np.nan_to_num(np.maximum(nodes.allocatable - seen.requested, 0.0))
    free[~seen.told] = 0.0  # what is not known to be free is not given away
    node = mid.Node(
        capacity=nodes.capacity,
        allocatable=nodes.allocatable,
        reserved=np.full_like(nodes.capacity, np.nan),
        system=nodes.system,
        usage=nodes.usage,
        reclaimable=shipped.reclaimable,
        requested=seen.requested,
    )
    ships = mid.shipped(node, threshold=threshold, unallocated=settings.unallocated_ratio)
    return reclaimable, np.stack([lent, lent + free, ships], axis=1)
