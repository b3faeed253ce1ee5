"""How many more pods fit on a node: of each workload class, and of the expected mix of classes.

A node is believed to use `rest + drift + sum of W_k n_k`: what no pod takes, what classes take beyond their costs now,
and what their pods want. It is in shares of what pods may have (`limit`): a serving pod takes demand / (rho* c) of the
CPUs, a soaking one threads / (s c), any pod bytes over bytes. What is in no pod counts as serving, but as r / c beside
soaking pods. Pods that have just started count with what others of their class take, so neither a start nor an end
shakes the sum. Class w then fits `A = min over resources of free/W_w` more times; the node's pod limit bounds it. Each
number says what fits if nothing else comes.

What comes next is a mix: weights w_k by what was started lately (`mix`), so what fits of it is
`min over resources of free / sum of w_k W_k`. As far as no class is known to come, it is the mean pod of
the cluster, and where that is not known the reference pod.

The lower bound is what fits in the bad one of ten cases, over what is not known: the level of use (V), the mean cost of
a class (v, and b^2/n where the n pods that run differ), how far the cost of the next x pods is from that mean (b^2/x),
and, of a mix, which classes they are of. With z the 90 % quantile,

    lower = min over resources of (free - z sqrt V) / (W (1 + z sqrt(v/W^2 + b^2/x)))

which charges both kinds of doubt in full, and rounds down to whole pods, since part of a pod cannot be placed. What was
started last says what comes next only as far as it goes on, so that bound also holds for the mix of what runs here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import availability, level, limit, slowdown
from processors.estimation.availability import DISK
from processors.estimation.availability import Room as Total
from processors.estimation.level import quotient
from processors.workload import classes, kind
from processors.workload.capacity import bursts, disk, expected
from processors.workload.capacity.disk import Law
from processors.workload.capacity.expected import Costs, Left, Next, Unknown
from processors.workload.capacity.fit import Fits
from processors.workload.capacity.nodes import Cluster, Nodes
from processors.workload.classes import EMPTY
from processors.workload.cost import Cost, differing
from processors.workload.usage import CPU, MEMORY, over_slots
from schemas.settings import Settings

Array = NDArray[np.float64]

_APART = np.array([0.15, 0.05])  # standard deviation of one pod's cost around its class's mean, relative, at least
_APART_SOAKING = np.array([0.02, 0.05])  # threads that never sleep take a core each
_LEAST = 1e-9  # cost
_STALE_US = 10_000_000  # behind the node's samples: usage of pods does not come any more


class Room(NamedTuple):
    """Room per node and class: a node's slots first, then the cluster's classes.

    Attributes:
        label: (nodes, classes) EMPTY: no class in this column.
        pods: (nodes, classes) running pods of the class on the node.
        cost: (nodes, classes, resources) share of what pods may have that one pod takes.
        available: (nodes, classes) more pods that fit.
        lower: (nodes, classes) one-sided 90 % lower bound.
        binding: (nodes, classes) index of the resource that runs out first, or `PODS` or `DISK`.
        assumed: (nodes, classes) share of the cost that no node of the cluster has observed.
        soaking: (nodes, classes) True: threads of the class are always runnable.
        used: (nodes, resources) share of what pods may have that they take; above 1: more than the policy admits.
        weights: (nodes, classes) of the expected mix; what they lack to 1 is that of pods of no class that is known.
        total: Room for that mix.
        prior: (nodes,) share of its cost that is assumed.
        estimated: (nodes,) True: `total` rests on what pods were seen to take, or no pod runs.
        classed: (nodes,) True: the node or the cluster knows a class.
    """

    label: NDArray[np.int64]
    pods: Array
    cost: Array
    available: Array
    lower: Array
    binding: NDArray[np.int64]
    assumed: Array
    soaking: NDArray[np.bool_]
    used: Array
    weights: Array
    total: Total
    prior: Array
    estimated: NDArray[np.bool_]
    classed: NDArray[np.bool_]


def update(
    state: classes.State, cost: Cost, cluster: Cluster, nodes: Nodes, coming: Next, *, settings: Settings
) -> Room:
    """Compute the room of each class, and of the mix.

    Args:
        state: What the nodes run.
        cost: What it costs, in cores and bytes.
        cluster: Classes that are known elsewhere.
        nodes: What else is known of the nodes.
        coming: What comes next.
        settings: Settings.
    """
    slots, factor = cost.value.shape[1], _factor(cost.soaking, cost.value, nodes)
    costs = _costs(state, cost, factor, cluster, nodes, settings.estimate.prior_deviation)
    # What pods take is known only as long as it is reported.
    measured = state.measured & (nodes.at_us - state.at_us <= _STALE_US)[:, None]
    used, spread = _used(state, costs.value[:, :slots], costs.doubt[:, :slots], measured, nodes)
    costs = _widened(costs, differing(state) * factor**2, state.pods)
    costs = _with_young(costs, state.apart, cost, nodes)
    free = availability.free(used, settings.estimate)
    columns = costs.label.shape[1]
    left = Left(free, spread, np.maximum(nodes.most - nodes.pods, 0.0), settings.policy.whole)
    disks = disk.law(state.disk, state.pods, nodes.soaked / nodes.cores, columns)
    pods, unknown = _padded(state.pods, columns), Unknown(nodes.unknown, nodes.averaged)
    of_class = expected.fits(left, costs, disks)
    mixed, of_mix, law = expected.of_mix(left, costs, disks, coming, pods, unknown)
    if (then := _in_bursts(left, costs, state, cost, nodes)) is not None:
        of_class = of_class.at_most(expected.fits(*then, disks))
        of_mix = of_mix.at_most(expected.of_mix(*then, disks, coming, pods, unknown)[1])
    assumed, priors = _assumed(state, cost, cluster)
    classed = np.any(costs.label >= 0, axis=1)
    return Room(
        label=costs.label,
        pods=pods,
        cost=costs.value,
        available=of_class.available,
        lower=of_class.lower,
        binding=of_class.binding,
        assumed=assumed,
        soaking=costs.soaking,
        used=used,
        weights=mixed.weights,
        total=_total(of_mix, free, mixed.value[:, 0], law, nodes.pods),
        prior=np.minimum(over_slots(mixed.weights * priors) + mixed.reference, 1.0),
        # Where no class is known the node's own regression counts, whichever nodes it is folded with.
        estimated=classed & ((nodes.pods == 0) | _evident(state, nodes, settings.estimate.memory_seconds)),
        classed=classed,
    )


def _evident(state: classes.State, nodes: Nodes, memory_seconds: float) -> NDArray[np.bool_]:
    """Tell of which nodes (nodes,) what pods take is known, or that their first ones start.

    Costs are known for longer than usage, which then follows the node as a whole.
    """
    silent_us = nodes.at_us - state.at_us
    none_yet = (state.at_us > 0) & (silent_us <= _STALE_US) & ~state.pods.any(axis=1)
    return none_yet | (state.measured.all(axis=1) & (silent_us <= memory_seconds * 1e6))


def _padded(of_slots: Array, classes: int) -> Array:
    """Return values of slots (nodes, classes), zero for classes that run elsewhere."""
    return np.concatenate((of_slots, np.zeros((len(of_slots), classes - of_slots.shape[1]))), axis=1)


def _in_bursts(left: Left, costs: Costs, state: classes.State, cost: Cost, nodes: Nodes) -> tuple[Left, Costs] | None:
    """Return what is left, and what pods cost, in bursts of the classes that run; None: none works in bursts."""
    now = cost.value[..., CPU]
    cores, soaking = bursts.of(state.bursts, now, cost.soaking)
    if np.array_equal(cores, now):
        return None
    most = np.stack((cores, cost.value[..., MEMORY]), axis=-1)
    shares = (_bounded(most, soaking, nodes) * _factor(soaking, most, nodes))[..., CPU]
    more = np.maximum(shares - costs.value[:, : now.shape[1], CPU], 0.0)
    # Of what all that run would take if their bursts came at the same time, as much as they took at a time.
    demanded = over_slots((now * state.pods)[..., None])[:, 0] + state.drift.mean[:, CPU] * nodes.amount[:, CPU]
    beyond = np.maximum(state.bursts.most[:, 0] - np.nan_to_num(demanded), 0.0)
    at_once = over_slots(((cores - now) * state.pods)[..., None])[:, 0]
    part = np.minimum(quotient(beyond, at_once), 1.0)
    value, free = costs.value.copy(), left.free.copy()
    value[:, : now.shape[1], CPU] += more
    free[:, CPU] = np.maximum(free[:, CPU] - part * over_slots((more * state.pods)[..., None])[:, 0], 0.0)
    return left._replace(free=free), costs._replace(value=value)


def _widened(costs: Costs, variance: Array, pods: Array) -> Costs:
    """Return costs that allow for pods of a class that differ: those that come do, and the mean of those that run.

    `variance` (nodes, slots, resources) is that of one pod's share, and `pods` (nodes, slots) is how many run.
    """
    doubt, apart, slots = costs.doubt.copy(), costs.apart.copy(), pods.shape[1]
    doubt[:, :slots] += variance / np.maximum(pods, 1.0)[..., None]
    apart[:, :slots] = np.maximum(apart[:, :slots], variance)
    return costs._replace(doubt=doubt, apart=apart)


def _with_young(costs: Costs, more: Array, cost: Cost, nodes: Nodes) -> Costs:
    """Return costs whose doubt allows for what a young pod uses beyond (nodes, slots): others may go on so, too."""
    if not more.any():
        return costs
    cores = cost.value.copy()
    cores[..., CPU] += more
    shares = (_bounded(cores, cost.soaking, nodes) * _factor(cost.soaking, cores, nodes))[..., CPU]
    doubt, slots = costs.doubt.copy(), more.shape[1]
    apart = np.maximum(shares - costs.value[:, :slots, CPU], 0.0)
    doubt[:, :slots, CPU] += np.where(more > 0, apart / availability.ONE_SIDED_90, 0.0) ** 2
    return costs._replace(doubt=doubt)


def _costs(
    state: classes.State, cost: Cost, factor: Array, cluster: Cluster, nodes: Nodes, prior_deviation: float
) -> Costs:
    value, doubt = _bounded(cost.value, cost.soaking, nodes) * factor, cost.variance * factor**2
    apart = np.where(cost.soaking[..., None], _APART_SOAKING, _APART) * value
    soaking = np.broadcast_to(cluster.soaking > kind.SOAKING, (len(value), len(cluster.label)))
    absolute = _bounded(np.maximum(cluster.cost, nodes.reference[:, None, :] / 100), soaking, nodes)
    elsewhere = absolute * _factor(soaking, absolute, nodes)
    apart_elsewhere = np.where(soaking[..., None], _APART_SOAKING, _APART) * elsewhere
    here = np.any(state.label[:, :, None] == cluster.label, axis=1)
    return Costs(
        label=np.concatenate((state.label, np.where(here, EMPTY, cluster.label)), axis=1),
        value=np.concatenate((value, elsewhere), axis=1),
        doubt=np.concatenate((doubt, (prior_deviation * elsewhere) ** 2), axis=1),
        apart=np.concatenate((apart, apart_elsewhere), axis=1) ** 2,
        soaking=np.concatenate((cost.soaking, soaking), axis=1),
    )


def _assumed(state: classes.State, cost: Cost, cluster: Cluster) -> tuple[Array, Array]:
    """Return the shares (nodes, classes) of costs that no node has seen, and of those that this node has not seen."""
    same = state.label[:, :, None] == cluster.label
    elsewhere_assumed = np.where(same, cluster.assumed, 1.0).min(axis=2, initial=1.0)
    prior, elsewhere = cost.prior.max(axis=2), (len(state.label), len(cluster.label))
    return (
        np.concatenate((np.minimum(prior, elsewhere_assumed), np.broadcast_to(cluster.assumed, elsewhere)), axis=1),
        np.concatenate((prior, np.ones(elsewhere)), axis=1),
    )


def _total(of_mix: Fits, free: Array, mean: Array, at_disks: Law | None, pods: Array) -> Total:
    """Return what fits of the mix; its cost and capacity are those of what runs out first."""
    binding, rows = of_mix.binding[:, 0], np.arange(len(free))
    scarce = np.where(binding < 0, np.argmin(free / np.maximum(mean, _LEAST), axis=1), binding)
    cost, left = mean[rows, scarce], free[rows, scarce]
    if at_disks is not None:
        cost = np.where(binding == DISK, at_disks.share[:, 0], cost)
        left = np.where(binding == DISK, at_disks.free[:, 0], left)
    return Total(
        available=of_mix.available[:, 0],
        lower=of_mix.lower[:, 0],
        upper=of_mix.upper[:, 0],
        binding=binding,
        cost=cost,
        capacity=np.minimum(left + cost * pods, 1.0),
        resource=scarce,
    )


def _bounded(cost: Array, soaking: NDArray[np.bool_], nodes: Nodes) -> Array:
    """Return costs (nodes, classes, resources) with at most all cores for a soaking pod.

    With more threads than there are cores its work takes longer alone, too, so those slow down nothing but each other.
    """
    bounded = cost.copy()
    bounded[..., CPU] = np.where(soaking, np.minimum(cost[..., CPU], nodes.cores[:, None]), cost[..., CPU])
    return bounded


def _factor(soaking: NDArray[np.bool_], cost: Array, nodes: Nodes) -> Array:
    """Return by what costs in cores and bytes are multiplied, (nodes, classes, resources), to be shares."""
    ratio = (nodes.amount[:, CPU] / nodes.soaked)[:, None]
    serving = slowdown.weight(cost[..., CPU], nodes.queueing[:, None])
    return np.stack((np.where(soaking, ratio, serving), np.ones(soaking.shape)), axis=-1) / nodes.amount[:, None, :]


def _interrupting(state: classes.State, taken: Array, nodes: Nodes) -> Array:
    """Return by what shares of what is in no pod are multiplied, (nodes, resources), beside pods that take so much.

    It takes time from soaking pods, and no more: of c CPUs that it uses r of, s (c - r) threads hold.
    """
    soaking = np.where(state.kind > kind.SOAKING, taken[..., CPU], 0.0)[..., None]
    part = quotient(over_slots(soaking)[:, 0], over_slots(taken)[:, CPU])
    factor = np.ones((len(part), taken.shape[2]))
    factor[:, CPU] -= part * np.maximum(1 - nodes.amount[:, CPU] / nodes.cores, 0.0)
    return factor


def _used(
    state: classes.State, value: Array, doubt: Array, measured: NDArray[np.bool_], nodes: Nodes
) -> tuple[Array, Array]:
    """Return the used share (nodes, resources) of what pods may have, and its variance."""
    occupied = state.label >= 0
    pods = np.where(occupied, state.pods, 0.0)[..., None]
    taken = value * pods
    reserved = nodes.reserved / nodes.amount
    rest = np.maximum(state.rest.mean, reserved) * _interrupting(state, taken, nodes)
    learned = rest + np.nan_to_num(state.drift.mean) + over_slots(taken)
    # Memory in use is known to the byte; only what pods have yet to allocate is learned.
    seen = nodes.level.mean.copy()
    seen[:, 1] += np.where(measured[:, 1], (state.pending + state.cached) / nodes.amount[:, 1], 0.0)
    learnable = measured & ~np.isnan(state.rest.mean)
    learned[:, 1] = seen[:, 1] + np.maximum(reserved - np.nan_to_num(state.rest.mean), 0.0)[:, 1]
    believed = np.where(learnable, np.maximum(learned, 0.0), np.maximum(seen, reserved))
    slow = level.SLOW_SECONDS
    surroundings = level.doubt(state.rest, slow=slow) + level.doubt(state.drift, slow=slow)
    # Drift follows what pods really take, so how unsure their cost is matters only while some of them are not counted.
    learning = np.where(nodes.churn[:, None], over_slots(doubt * pods**2), 0.0)
    spread = np.where(learnable, surroundings + learning, level.doubt(nodes.level, slow=slow))
    spread[:, 0] += limit.DOUBT**2
    return believed, spread
