"""Every model's peak of every group of some nodes, and what the chosen one leaves to lower tiers.

Groups are the whole node, the priority classes of its pods, and what is in no pod; axes are (nodes, groups, models,
resources). Models that add up pods take what is in no pod for one more pod of the node.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.outlook import statistic
from processors.peak import batch, borg, central, koordinator, mid, pod_sum, sigma
from schemas.outlook_section import PEAK_MODELS, Predict
from schemas.prediction import GROUPS

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


def predict(nodes: Nodes, pods: Pods, settings: Predict) -> Result:
    """Return everything that is predicted of some nodes."""
    count = len(nodes.capacity)
    shape = count, len(GROUPS), 2
    percentile = statistic.percentile(nodes.statistics, settings).reshape(shape)
    shipped = _shipped(nodes, pods, percentile, settings)
    by_model = {
        "calibrated": nodes.calibrated,
        "n_sigma": sigma.peak(nodes.statistics.moments, n=settings.sigma).reshape(shape),
        "koordinator": percentile * (1.0 + _margin_percent(settings) / 100),
        **_by_pods(nodes, pods, percentile, settings, shape),
    }
    peaks = np.stack([by_model[name] for name in PEAK_MODELS], axis=2)
    prod = np.isin(GROUP_OF_PRIORITY[pods.priority], (PROD, NONE)) & ~pods.ending
    asked = np.where(prod[:, None], pods.request, 0.0)
    requested = pod_sum.add(asked, pods.node, count)
    unpredicted = pod_sum.add(np.where(pods.cold[:, None], asked, 0.0), pods.node, count)
    warm = np.where(prod & ~pods.cold, pods.node, pod_sum.UNBOUND)
    own = central.peak(statistic.percentile(pods.statistics, settings), pods.request, warm, count)
    seen = Seen(peaks[:, :, PEAK_MODELS.index(settings.model)], own, requested, unpredicted, _told(pods, percentile))
    reclaimable, lent = _lent(nodes, settings, seen, shipped)
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


def _shipped(nodes: Nodes, pods: Pods, percentile: Array, settings: Predict) -> koordinator.Result:
    """Return what Koordinator's own predictors say."""
    own = koordinator.Pods(
        row=pods.node,
        priority=pods.priority,
        request=pods.request,
        percentile=statistic.percentile(pods.statistics, settings),
        cold=pods.cold,
        ending=pods.ending,
    )
    parts = percentile[:, [SYSTEM, PROD, NONE]]
    return koordinator.predict(own, parts, nodes.allocatable, margin_percent=_margin_percent(settings))


def _margin_percent(settings: Predict) -> int:
    return round(settings.margin * 100)  # Koordinator has whole ones


def _told(pods: Pods, percentile: Array) -> NDArray[np.bool_]:
    """Tell of which nodes (nodes,) anybody has said what pods there are."""
    listed = np.bincount(pods.node, minlength=len(percentile)) > 0
    return np.asarray(listed | ~np.isnan(percentile[:, SYSTEM]).any(axis=1))


def _by_pods(
    nodes: Nodes, pods: Pods, percentile: Array, settings: Predict, shape: tuple[int, int, int]
) -> dict[str, Array]:
    """Return the models that add up pods."""
    count = shape[0]
    group = GROUP_OF_PRIORITY[pods.priority]
    own = sigma.peak(nodes.statistics.moments, n=settings.sigma).reshape(shape)
    pod_percentile = statistic.percentile(pods.statistics, settings)

    def summed(per_row: list[Array]) -> Array:
        whole, by_class = (part.reshape(shape) for part in per_row)
        found = by_class.copy()
        found[:, NODE] = whole[:, NODE]
        found[:, SYSTEM] = np.nan
        return found

    flat = [pods.node * len(GROUPS) + place for place in (NODE, group)]
    size = count * len(GROUPS)
    rates = summed([borg.peak(pods.request, row, size, overcommit=settings.overcommit) for row in flat])
    rates[~_told(pods, percentile)] = np.nan
    highs = summed([central.peak(pod_percentile, pods.request, row, size) for row in flat])
    sums = summed(
        [sigma.peak_by_pods(pods.statistics.moments, pods.request, row, size, n=settings.sigma) for row in flat]
    )
    for per_pod, outside in ((highs, percentile), (sums, own)):
        per_pod[:, SYSTEM] = outside[:, SYSTEM]
        # Where nobody has told yet which pods there are, their sum is not the node.
        per_pod[:, NODE] += outside[:, SYSTEM]
    most = np.fmax(rates, highs)
    most[:, NODE] = np.maximum(rates[:, NODE], highs[:, NODE])
    return {
        "pods_n_sigma": np.fmax(own, sums),
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
