"""A weighted score of fit, disk and network type, price, stability and priority (ADR 22), above a least availability.

The filter requires free room for the pod's requests and for its limits, and the type of disk or network that the pod
asks for. The score is the weighted mean of the factors in `factor`.

A pod asks with the annotation, or else the label, `spazio.disk-type` or `spazio.network-type`. A node offers with the
label, or else the annotation, of the same name; for disks also with the label `disktype`, the example in the
Kubernetes documentation of nodeSelector. Providers' own labels name products and sizes, so they do not suit requests
across providers.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.strategy import factor
from sinks.extender.strategy.node_resources import allocation

log = logging.getLogger(__name__)

MINIMUM = "spazio.minimum-availability"
AT_RISK = "nodes like this one are taken away more often than the pod allows"
DISK = ("spazio.disk-type", "disktype")
NETWORK = ("spazio.network-type",)
_KINDS = {"disk": DISK, "network": NETWORK}
ASKED = (MINIMUM, DISK[0], NETWORK[0])  # what a pod asks with


def limited(resource: str) -> str:
    """Return the reason to refuse a node without room for the pod's limit of a resource."""
    return f"less {resource} is left than the pod's limit"


def mismatched(kind: str) -> str:
    """Return the reason to refuse a node that lacks the type the pod asks for."""
    return f"the node's {kind} type is not the one that the pod asks for"


class Weighted(allocation.Fit):
    """Ranks by a weighted mean of factors.

    Attributes:
        weights: By factor; an absent factor has weight 0.
        high_priority: Pods of this priority or more are critical.
        available: Share of nodes that must survive a day, 0 to 1; a pod's annotation wins.
    """

    name = "weighted"

    def __init__(self, weights: Mapping[str, float], high_priority: int, available: float = 0.0) -> None:
        self.weights = weights
        self.high_priority = high_priority
        self.available = available

    @property
    def needs_market(self) -> bool:
        """Past prices or interruptions change what it says."""
        return self.available > 0 or any(self.weights.get(name, 0.0) > 0 for name in ("price", "stability"))

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:
        """Return, by reason, the nodes that lack room for requests or limits, a type, or the availability."""
        masks = dict(super().refuse(pod, nodes))
        for resource, limit in pod.limits.items():
            if limit > 0 and resource in nodes.allocatable:
                masks[limited(resource)] = allocation.beyond(nodes, resource, limit)
        for kind in _KINDS:
            masks[mismatched(kind)] = matches(pod, nodes, kind) == 0
        if (wanted := self._wanted(pod)) > 0:
            masks[AT_RISK] = _surviving(nodes) < wanted
        return {reason: mask for reason, mask in masks.items() if mask.any()}

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) scores from 0 to 100; 0 where allocatable is unknown, or all weights are 0."""
        factors = self.factors(pod, nodes)
        weights = [self.weights.get(name, 0.0) for name in factors]
        total = np.zeros(len(nodes.names))
        if sum(weights) > 0:
            for weight, values in zip(weights, factors.values(), strict=True):
                total += weight / sum(weights) * np.nan_to_num(values)
        return np.where(np.isnan(factors["fit"]), 0.0, np.clip(100 * total, 0, 100))

    def factors(self, pod: Pod, nodes: Candidates) -> dict[str, Array]:
        """Return each factor (nodes,) from 0 to 1; fit is NaN where allocatable is unknown."""
        left, total = _room(pod, nodes)
        return {
            "fit": factor.fit(left, total),
            "disk": matches(pod, nodes, "disk"),
            "network": matches(pod, nodes, "network"),
            "price": factor.price(nodes.price, nodes.median_price),
            "stability": factor.stability(nodes.interruption_rate, nodes.price, nodes.median_price, nodes.spot),
            "priority": factor.priority(critical=pod.priority >= self.high_priority, spot=nodes.spot),
        }

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:
        """Return the free amount of each resource that does not suffice, and the type that the node has."""
        sentences = list(super().needs(pod, nodes, index))
        refused = self.refuse(pod, nodes)
        for resource, limit in pod.limits.items():
            if (reason := limited(resource)) in refused and refused[reason][index]:
                sentences.append(allocation.short(nodes, resource, "has a limit of", limit, index))
        for kind, names in _KINDS.items():
            if (reason := mismatched(kind)) in refused and refused[reason][index]:
                offered = factor.offered(nodes.labels[index], nodes.annotations[index], names) or "none that it names"
                sentences.append(f"{kind} type: the pod asks for {wish(pod, kind)}, the node has {offered}")
        if AT_RISK in refused and refused[AT_RISK][index]:
            required = (
                "an unknown share" if np.isnan(nodes.interruption_rate[index]) else f"{_surviving(nodes)[index]:.3f}"
            )
            sentences.append(
                f"availability: {required} of such nodes survives a day, the pod asks for {self._wanted(pod):g}"
            )
        return sentences

    def _wanted(self, pod: Pod) -> float:
        """Return the share of nodes that must survive a day for this pod."""
        own = _share(pod.annotations[MINIMUM]) if MINIMUM in pod.annotations else np.nan
        return self.available if np.isnan(own) else own


def _surviving(nodes: Candidates) -> Array:
    """Return (nodes,) the share of such nodes that survives a day, 0 to 1; 0 for spot nodes of unknown risk."""
    share = factor.stability(nodes.interruption_rate, nodes.price, nodes.median_price, nodes.spot)
    return np.where(nodes.spot & np.isnan(nodes.interruption_rate), 0.0, share)


@lru_cache(maxsize=4096)  # cached, so that an invalid share is logged once, not for every pod
def _share(text: str) -> float:
    """Return the share in an annotation, 0 to 1; NaN: it is none."""
    try:
        share = float(text)
    except ValueError:
        share = np.nan
    if not 0 <= share <= 1:
        log.warning("weighted.annotation_unreadable", extra={"annotation": MINIMUM, "value": text[:64]})
        return np.nan
    return share


def wish(pod: Pod, kind: str) -> str:
    """Return the type of disk or network that the pod asks for; empty: any."""
    return factor.offered(pod.annotations, pod.labels, _KINDS[kind][:1])


def matches(pod: Pod, nodes: Candidates, kind: str) -> Array:
    """Return (nodes,) 1 where the node has the type that the pod asks for, or it asks for none, and 0 elsewhere."""
    wanted = wish(pod, kind)
    if not wanted:
        return np.ones(len(nodes.names))
    offers = [""] * len(nodes.names)
    for name in _KINDS[kind]:
        each = zip(offers, nodes.labels, nodes.annotations, strict=True)
        offers = [before or labels.get(name) or notes.get(name, "") for before, labels, notes in each]
    fitting = {text for text in set(offers) if factor.offered({kind: text}, {}, (kind,)) == wanted}
    return np.array([text in fitting for text in offers], dtype=np.float64)


def _room(pod: Pod, nodes: Candidates) -> tuple[Array, Array]:
    """Return the free amount once the pod is there, and the allocatable one, of each resource that the pod requests.

    CPU and memory always count.

    Returns:
        Two arrays (resources, nodes).
    """
    resources = {"cpu", "memory"} | {name for name, asked in pod.requests.items() if asked > 0}
    counted = sorted(resources & set(nodes.allocatable))
    total = np.array([nodes.allocatable[name] for name in counted])
    asked = np.array([[pod.requests.get(name, 0.0)] for name in counted])
    return total - np.array([nodes.requested[name] for name in counted]) - asked, total
