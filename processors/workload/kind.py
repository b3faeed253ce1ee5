"""Of which kind a class is, and what its pods want, second by second; see `classes` for what both mean.

Threads of a soaking pod are always runnable, so what its pods use and wait for together is a whole number of cores,
second after second, or it is what a CPU quota leaves them. Some seconds of either make a class a soaking one. On a full
machine how much each class waits is known roughly in one second, so whether it still soaks is judged by the mean of
many. What its pods declare counts from the first block on, and is not judged.

A soaking pod wants what it uses and what it waits for, and it says so however full the machine is, unless a quota was
seen to bound it while the machine was not. A serving pod wants what it uses; on a machine that is full it gets less, so
then nothing is learned of it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.estimation.level import quotient
from processors.workload.pods import never_sleeping
from processors.workload.usage import BOUNDED, CPU, Usage, absent

Array = NDArray[np.float64]

SOAKING = 0.5  # of the kind's evidence

_EVIDENT_SECONDS = 10.0  # of a level
_KIND_SECONDS = 5.0
_DISTURBED_SECONDS = 1.3  # a block over more than that: something kept the agent from measuring, and pods from running
_WHOLE, _WIDEST = 0.1, 0.15  # how far from whole cores the mean pod is on a full machine: relative, and at most
_ALL_CPUS = 1.02  # of the CPUs: what a single pod wants
_KEPT_FROM = 0.2  # of what pods use: more than that they wait for
_MOSTLY, _ALL = 0.5, 0.9  # of a class's pods


class Evidence(NamedTuple):
    """What is known of classes (nodes, slots) before a block; fields as of `classes.State`."""

    demand: level.State
    kind: Array
    quota: Array
    present_us: NDArray[np.int64]

    @property
    def evident(self) -> NDArray[np.bool_]:
        """Where the demand rests on evidence."""
        return self.demand.age > _EVIDENT_SECONDS

    @property
    def limited(self) -> NDArray[np.bool_]:
        """Where a soaking class demands what its quota leaves it: it is known to have one, or it is no thread."""
        return (self.quota > BOUNDED) | ~never_sleeping(self.demand.mean)


def demand(evidence: Evidence, usage: Usage, full: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Return the cores (nodes, slots) that the mean counted pod demands, NaN: none is counted; and where to ignore it.

    Args:
        evidence: Demand before the block, kinds and quotas after it.
        usage: The block.
        full: (nodes,) True: no CPU is idle.
    """
    evident, mean = evidence.evident, evidence.demand.mean
    soaking, counted, used = evidence.kind > SOAKING, usage.counted[..., CPU], usage.used[..., CPU]
    # A thread that never sleeps demands a core, however the node's waiting is shared among all pods; it uses and waits
    # for less where the hypervisor takes time.
    thread = full[:, None] & evident & never_sleeping(mean) & (np.round(mean) == 1)
    awake = (usage.busy >= _ALL * counted) | (thread & (usage.busy_with_steal >= _ALL * counted))
    awake &= soaking & (evidence.quota <= BOUNDED) & (counted > 0)
    # What a quota keeps it from is no want of a pod, nor is what it waits for within its quota.
    limited, held = soaking & evident & evidence.limited & ~awake, usage.held > _MOSTLY * counted
    # A pod that is first seen on a full machine may be of either kind; what it waits for is then a part of its want.
    waits = (soaking & ~limited & ~held) | (full[:, None] & ~evident)
    wanted = used + np.where(waits, usage.waiting, 0.0)
    # Pods that take less than their quota on a full machine, and wait, are kept from it by others.
    less = full[:, None] & (used < np.nan_to_num(mean) * counted)
    kept = limited & ~held & less & (usage.waiting > _KEPT_FROM * used)
    cores = np.divide(wanted, counted, out=np.full_like(wanted, np.nan), where=counted > 0)
    return np.where(awake, 1.0, cores), (full[:, None] & evident & ~soaking) | kept


def after(evidence: Evidence, usage: Usage, full: NDArray[np.bool_], fragments: Array) -> Array:
    """Return how soaking each class is (nodes, slots) after a block.

    Args:
        evidence: Evidence before the block.
        usage: The block.
        full: (nodes,) True: no CPU is idle.
        fragments: (nodes, slots) cores that the `brief` pods of a class demand; NaN: it has others.
    """
    counted, soaking = usage.counted[..., CPU], evidence.kind > SOAKING
    rough = ~np.isnan(fragments)
    threads = np.where(rough, fragments, quotient(usage.used[..., CPU] + usage.waiting, counted))
    evident = full[:, None] & evidence.evident
    threads = np.where(evident & soaking, evidence.demand.mean, threads)
    # What threads wait for on a full machine is less exact.
    nearest = np.round(threads)
    roughly = np.abs(threads - nearest) <= np.minimum(_WHOLE * nearest, _WIDEST)
    # One pod that wants all CPUs leaves none idle, however many requests it serves.
    beyond, mostly = threads > _ALL_CPUS * usage.cores[:, None], _MOSTLY * counted
    # Else each pod counts by itself: the mean of many that differ lies near any number.
    whole = np.where(full[:, None], ((nearest >= 1) & roughly) | beyond, usage.whole > mostly)
    # What ends within a second and takes a core is a job; its start and its end may add to that.
    whole = np.where(rough, threads >= 1 - _WHOLE, whole)
    shows = whole | (usage.held > mostly) | (usage.busy > mostly)
    # A serving class looks like a soaking one while the machine cannot keep up with it, and pods that others keep from
    # what their quota allows look like anything.
    decided = evident & (~soaking | ((evidence.quota > BOUNDED) & (usage.held <= mostly)))
    shown = ((counted > 0) | rough) & ~decided
    return np.where(np.isnan(usage.declared), _toward(evidence.kind, shows, shown, usage), usage.declared)


def quota(evidence: Evidence, usage: Usage, full: NDArray[np.bool_]) -> Array:
    """Return how much quotas bound what pods use (nodes, slots) after a block.

    On a full machine others keep pods from what their quota allows, so that it does not show, and what was seen before
    holds for as long as the machine is full. Of a class that was away for a while nothing is assumed.
    """
    before = np.where(absent(usage, evidence.present_us), 0.0, evidence.quota)
    counted, held = usage.counted[..., CPU], usage.held > _MOSTLY * usage.counted[..., CPU]
    return _toward(before, held, (counted > 0) & (held | ~full[:, None]), usage)


def _toward(before: Array, shows: NDArray[np.bool_], shown: NDArray[np.bool_], usage: Usage) -> Array:
    """Return shares that follow what shows, where anything is `shown`, for as long as a block is."""
    judged = shown & (usage.span[:, None] <= _DISTURBED_SECONDS)
    gain = np.where(judged, -np.expm1(-usage.span[:, None] / _KIND_SECONDS), 0.0)
    return np.asarray(before + gain * (shows - before))
