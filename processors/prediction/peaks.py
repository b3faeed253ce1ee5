"""Every model's peak of every group of some nodes, and what the chosen one leaves to lower tiers.

Groups are those of `tier.group`; models are those of `models.registry`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction import statistic
from processors.prediction.models import calibrated, protocol, registry, resource_central
from processors.prediction.models.protocol import Evidence
from processors.prediction.scoring import conformal
from processors.prediction.tier import batch, group, koordinator, pod_sum
from processors.prediction.tier import reclaimable as tier
from schemas.sections.prediction import PEAK_MODELS, Predict

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


class Pods(NamedTuple):
    """The pods of those nodes.

    Attributes:
        node: (pods,) index of its node.
        priority: (pods,) as `priority.Priority`.
        request: (pods, resources) cores and bytes.
        usage: (pods, resources) newest usage; NaN: not known.
        exclusive: (pods,) owns its cores.
        ending: (pods,) is being deleted.
        cold: (pods,) is too young to be predicted, and inherited nothing.
        statistics: Its past usage.
    """

    node: Rows
    priority: NDArray[np.int8]
    request: Array
    usage: Array
    exclusive: NDArray[np.bool_]
    ending: NDArray[np.bool_]
    cold: NDArray[np.bool_]
    statistics: statistic.Past


class Nodes(NamedTuple):
    """The nodes.

    Attributes:
        statistics: Of their groups, (nodes x groups) rows.
        capacity: (nodes, resources) what the machine has.
        allocatable: (nodes, resources) what of it Kubernetes gives to pods; the machine's where that is not known.
        usage: (nodes, resources) mean of the last five minutes; NaN: not known.
        system: (nodes, resources) the same of what is in no pod.
        spread: (nodes, groups, resources) what the calibrated model's peaks are made of.
    """

    statistics: statistic.Past
    capacity: Array
    allocatable: Array
    usage: Array
    system: Array
    spread: conformal.Spread


class Result(NamedTuple):
    """What is predicted.

    Attributes:
        peaks: (nodes, groups, models, resources) in the order of `PEAK_MODELS`; NaN: the model does not predict it.
        assumed: (nodes, models, resources) True: nothing supports the model's peak of the node.
        requested: (nodes, resources) of prod pods.
        unpredicted: (nodes, resources) of those of them that are too young.
        reclaimable: (nodes, resources) by the chosen model.
        mid: (nodes, formulas, resources) in the order of `FORMULAS`.
        batch: (nodes, resources).
    """

    peaks: Array
    assumed: NDArray[np.bool_]
    requested: Array
    unpredicted: Array
    reclaimable: Array
    mid: Array
    batch: Array


def predict(nodes: Nodes, pods: Pods, settings: Predict) -> Result:
    """Return everything that is predicted of some nodes."""
    evidence = _evidence(nodes, pods)
    predicted = registry.peaks(evidence, settings)
    peaks = _whole_where_unknown(predicted, nodes.capacity)
    node = _node(nodes, pods, evidence, settings)
    shipped = _shipped(nodes, pods, evidence, settings)
    chosen = peaks[:, :, PEAK_MODELS.index(settings.model)]
    reclaimable = tier.reclaimable(node, chosen, shipped, settings)
    system = tier.system_peak(node, chosen)
    held = batch.held(pods.request, pods.usage, pods.priority, pods.exclusive, pods.node, len(nodes.capacity))
    reserved = nodes.capacity - nodes.allocatable
    return Result(
        peaks,
        _assumed(predicted, nodes.spread),
        node.requested,
        node.unpredicted,
        reclaimable,
        tier.formulas(node, reclaimable, system, shipped, evidence.lists_pods, settings),
        batch.allocatable(nodes.capacity, reserved, _outside(nodes, evidence.lists_pods), held),
    )


def _outside(nodes: Nodes, lists_pods: NDArray[np.bool_]) -> Array:
    """Return (nodes, resources) usage outside of pods: all of it where pods are not reported."""
    return np.where(lists_pods[:, None] & ~np.isnan(nodes.system), nodes.system, nodes.usage)


def _assumed(peaks: Array, spread: conformal.Spread) -> NDArray[np.bool_]:
    """Return (nodes, models, resources) True where nothing supports the model's peak of the node."""
    unknown = np.isnan(peaks[:, group.NODE])
    unknown[:, PEAK_MODELS.index(calibrated.MODEL.name)] |= np.isnan(spread.multiple[:, group.NODE])
    return unknown


def _whole_where_unknown(peaks: Array, capacity: Array) -> Array:
    """Return peaks where a model that predicts one resource of a group predicts the whole machine of the other.

    So a node that measures CPU alone has predictions, and nothing of its memory is given away.
    """
    is_unknown = np.isnan(peaks)
    one_is_known = ~is_unknown.all(axis=3, keepdims=True)
    return np.where(is_unknown & one_is_known, capacity[:, None, None, :], peaks)


def _whole_where_infinite(percentile: Array, capacity: Array) -> Array:
    """Return percentiles that are the whole machine where they are beyond what histograms tell apart."""
    return np.where(np.isinf(percentile), capacity, percentile)


def _evidence(nodes: Nodes, pods: Pods) -> Evidence:
    shape = len(nodes.capacity), group.COUNT, 2
    percentile = _whole_where_infinite(nodes.statistics.percentile.reshape(shape), nodes.capacity[:, None])
    has_pods = np.bincount(pods.node, minlength=len(percentile)) > 0
    return Evidence(
        size=nodes.capacity,
        percentile=percentile,
        moments=nodes.statistics.moments,
        spread=nodes.spread,
        # The usage of what runs in no pod is known only where the pods are.
        lists_pods=np.asarray(has_pods | ~np.isnan(percentile[:, group.SYSTEM]).any(axis=1)),
        pods=protocol.Pods(
            row=group.row(pods.node, pods.priority),
            request=pods.request,
            percentile=_whole_where_infinite(pods.statistics.percentile, nodes.capacity[pods.node]),
            moments=pods.statistics.moments,
        ),
    )


def _node(nodes: Nodes, pods: Pods, evidence: Evidence, settings: Predict) -> tier.Node:
    """Return what reclaimable is made of."""
    count = len(nodes.capacity)
    group_of = group.OF_PRIORITY[pods.priority]
    is_prod = ((group_of == group.PROD) | (group_of == group.NONE)) & ~pods.ending
    request = np.where(is_prod[:, None], pods.request, 0.0)
    warm = np.where(is_prod & ~pods.cold, pods.node, pod_sum.UNBOUND)
    return tier.Node(
        capacity=nodes.capacity,
        allocatable=nodes.allocatable,
        usage=nodes.usage,
        system=nodes.system,
        requested=pod_sum.add(request, pods.node, count),
        unpredicted=pod_sum.add(np.where(pods.cold[:, None], request, 0.0), pods.node, count),
        own=resource_central.peak(evidence.pods.percentile, pods.request, warm, count) * registry.margin(settings),
    )


def _shipped(nodes: Nodes, pods: Pods, evidence: Evidence, settings: Predict) -> koordinator.Result:
    """Return what Koordinator's own predictors say."""
    own = koordinator.Pods(
        row=pods.node,
        priority=pods.priority,
        request=pods.request,
        percentile=evidence.pods.percentile,
        cold=pods.cold,
        ending=pods.ending,
    )
    parts = evidence.percentile[:, [group.SYSTEM, group.PROD, group.NONE]]
    margin = koordinator.margin_percent(settings)
    return koordinator.predict(own, parts, nodes.allocatable, margin_percent=margin)
