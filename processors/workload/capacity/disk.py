"""How many more pods the disks of a node bear: a law of what pods wait for, and what it is learned from.

A pod that waits for a disk in a share d of the time has d requests there, in the mean (Little). Disks that serve m
requests at once slow everything down by D / m once the pods of a node have D > m requests there in a closed loop: each
of n writers that sync without a pause takes n times as long as alone if m = 1. A pod that is always busy, waiting or
computing, therefore takes d / (s m) of the disks. One that also sleeps is an open loop: of the time that its work
takes, f = d / (d + u) is spent at the disks (u: CPUs in use). While these are in use for a share r of the time, its
work takes 1 - f + f / (1 - r) as long (M/G/1 processor sharing), so they may be in use for r* = (s - 1) / (s - 1 + f),
and the pod takes d / (r* m). All of it counts a tenth more, and for pods that never sleep a quarter while m is 1, since
a file system orders what several sync.

How much a disk does at once is unknown, and 1 until it shows. What a pod waits for beside each second that it computes
measures how slow disks are and needs nothing else: it grows with the slowdown alone. Compared with what it was while
hardly anything waited, it says that D requests were slowed down x times, so m = D / x in a closed loop. In an open one,
a request finds D' others there, D without those of its own pod, and x = 1 + D' / m.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation.availability import DISK
from processors.estimation.level import quotient
from processors.workload.capacity.fit import Fits, blend, fit
from processors.workload.usage import CPU, Usage, over_slots

Array = NDArray[np.float64]

_LEAST = 0.02  # share of time: who waits for less is limited by other things
_NOT, _WHOLLY = 0.01, 0.03  # and from where to where that turns; a limit would come and go with a noisy mean
_MEMORY_SECONDS = 10.0
_ALONE_SECONDS = 3.0
_QUIET = 0.3  # requests of others: fewer hardly slow a pod down
_ALONE = 1.2  # requests: more than that, and they may slow one another down
_SLOWED = 1.2  # times
_OTHERS_SLOWED = 1.3  # times, in an open loop: less is noise, and disks bear twice as many requests
_SLEEPS, _AWAKE = 0.7, 0.9  # threads: up to the one a pod sleeps now and then, from the other on never
_APART = 0.1  # standard deviation of one pod's waiting around its class's mean, relative
_UNSURE = 0.5  # and of the mean that was watched for a second
_DOUBT = 0.15  # standard deviation of the share at which disks slow pods down as much as the policy allows
_LEAST_SLOWDOWN = 1.05
_DISTURB, _DISTURB_AWAKE = 1.1, 1.25  # what pods, and those that never sleep, make each other wait beyond that


class State(NamedTuple):
    """Evidence.

    Attributes:
        blocked: (nodes, slots) share of the time that the mean pod of a class waits for a disk.
        cores: (nodes, slots) CPUs that it uses.
        awake: (nodes, slots) how many of its threads wait for a disk, run, or wait for a CPU.
        seconds: (nodes, slots) how long they were watched.
        alone: (nodes, slots) seconds of waiting beside a second of CPU while disks were not contended; NaN: not known.
        parallel: (nodes,) requests that the disks serve at once.
    """

    blocked: Array
    cores: Array
    awake: Array
    seconds: Array
    alone: Array
    parallel: Array


def init(nodes: int, slots: int) -> State:
    """Return the state of nodes that run nothing."""
    shape = (nodes, slots)
    zeros = [np.zeros(shape) for _ in range(4)]
    return State(zeros[0], zeros[1], zeros[2], zeros[3], np.full(shape, np.nan), np.ones(nodes))


def clear(state: State, node: int, slot: int) -> None:
    """Forget the class of a slot, in place."""
    for part in (state.blocked, state.cores, state.awake, state.seconds):
        part[node, slot] = 0.0
    state.alone[node, slot] = np.nan


def update(state: State, usage: Usage) -> State:
    """Take in one block of each node."""
    counted = usage.counted[..., CPU]
    watched = (usage.watched > 0) & (counted > 0)
    span = usage.span[:, None]
    gain = np.where(watched, quotient(span, np.minimum(state.seconds, _MEMORY_SECONDS) + span), 0.0)
    waited, used = quotient(usage.blocked, usage.watched), quotient(usage.used[..., CPU], counted)
    blocked = state.blocked + gain * (waited - state.blocked)
    cores = state.cores + gain * (used - state.cores)
    after = state._replace(
        blocked=blocked,
        cores=cores,
        awake=state.awake + gain * (waited + used + quotient(usage.waiting, counted) - state.awake),
        seconds=state.seconds + np.where(watched, span, 0.0),
    )
    # Of this block alone: what was learned follows more slowly than pods come and go.
    waits = watched & (waited >= _LEAST) & (used > 0)
    requests = np.where(waits, waited * usage.pods, 0.0)
    total = _sum(requests)
    others = total[:, None] - waited
    beside, first = quotient(np.where(waits, waited, 0.0), used), np.isnan(state.alone)
    # A class that never runs alone is compared with what it was when it came, unless disks were contended even then.
    calm = waits & (after.seconds >= _ALONE_SECONDS) & ((others <= _QUIET) | first & (total <= _ALONE)[:, None])
    learned = np.where(first, quotient(blocked, cores), state.alone + gain * (beside - state.alone))
    compared = np.where(waits & ~first, requests, 0.0)
    stretch = quotient(_sum(compared * beside), _sum(compared * np.nan_to_num(state.alone)))
    closed = quotient(_sum(requests * _closed(after.awake)), total)
    met = quotient(_sum(requests * others), total)
    served = closed * quotient(total, np.maximum(stretch, 1.0))
    served += (1.0 - closed) * met / (np.maximum(stretch, _OTHERS_SLOWED) - 1.0)
    return after._replace(
        alone=np.where(calm, learned, state.alone),
        parallel=_parallel(state.parallel, np.maximum(served, 1.0), total, stretch, usage.span),
    )


def _sum(values: Array) -> Array:
    """Return the sum (nodes,) over the slots of (nodes, slots)."""
    return over_slots(values[..., None])[:, 0]


def _closed(awake: Array) -> Array:
    """Return how far a class is a closed loop, 0 to 1, by how many of a pod's threads are awake."""
    return np.clip((awake - _SLEEPS) / (_AWAKE - _SLEEPS), 0.0, 1.0)


def _parallel(before: Array, served: Array, requests: Array, stretch: Array, span: Array) -> Array:
    """Return how many requests the disks serve at once, which follows what was `served`."""
    part = -np.expm1(-span / _MEMORY_SECONDS)
    # As long as nothing is slowed down, more may be served than ask, and few requests tell little.
    more = (served < before) & ((stretch <= _SLOWED) | (requests <= _ALONE))
    return np.where((stretch > 0) & ~more, before + part * (served - before), before)


class Law(NamedTuple):
    """What pods take of the disks.

    Attributes:
        share: (nodes, classes) of what pods may take together that one pod of a class takes; 0: it does not wait.
        doubt: (nodes, classes) variance of that.
        apart: (nodes, classes) variance of one pod's share around it.
        free: (nodes, 1) share that pods may still take.
        spread: (nodes, 1) variance of that.
    """

    share: Array
    doubt: Array
    apart: Array
    free: Array
    spread: Array


def law(state: State, pods: Array, slowdown: Array, classes: int) -> Law | None:
    """Return what pods take; None: none of these nodes waits.

    Args:
        state: Evidence.
        pods: (nodes, slots) running pods.
        slowdown: (nodes,) allowed mean slowdown.
        classes: Columns of the result: slots, then classes that run elsewhere, of which nothing is known.
    """
    waiting = state.blocked * np.clip((state.blocked - _NOT) / (_WHOLLY - _NOT), 0.0, 1.0)
    if not waiting.any():
        return None
    allowed = np.maximum(slowdown, _LEAST_SLOWDOWN)[:, None]
    at_disks = quotient(waiting, waiting + state.cores)
    closed = _closed(state.awake)
    bent = closed / allowed + (1.0 - closed) * (allowed - 1.0 + at_disks) / (allowed - 1.0)
    parallel = state.parallel[:, None]
    # Disks that have shown to serve several at once did so with all that the pods disturb each other.
    disturbed = _DISTURB + closed * (_DISTURB_AWAKE - _DISTURB) / parallel
    own = disturbed * waiting * bent / parallel
    unsure = quotient(np.full_like(own, _UNSURE**2), np.minimum(state.seconds, _MEMORY_SECONDS) + 1.0)
    taken = (own * pods)[..., None]
    spread = _DOUBT**2 + over_slots(taken**2 * unsure[..., None])
    elsewhere = np.zeros((len(own), classes - own.shape[1]))
    share = np.concatenate((own, elsewhere), axis=1)
    return Law(
        share=share,
        doubt=np.concatenate((own**2 * unsure, elsewhere), axis=1),
        apart=(_APART * share) ** 2,
        free=np.maximum(1.0 - over_slots(taken), 0.0),
        spread=spread,
    )


def mixed(law: Law, weights: Array) -> Law:
    """Return what a pod of the mix takes, with one column; `weights` (nodes, classes) are those of the mix."""
    share, doubt, apart = blend(weights, law.share[..., None], law.doubt[..., None], law.apart[..., None])
    return law._replace(share=share, doubt=doubt, apart=apart)


def limited(fits: Fits, law: Law, left: Array, *, whole: bool) -> Fits:
    """Return what fits by the disks, too; `left` and `whole` as for `fit`."""
    share, doubt, apart = (part[..., None] for part in (law.share, law.doubt, law.apart))
    by_disk = fit(law.free, law.spread, share, doubt, apart, left, whole=whole)
    waits = law.share > 0
    available = np.where(waits, np.minimum(fits.available, by_disk.available), fits.available)
    return Fits(
        available=available,
        lower=np.where(waits, np.minimum(fits.lower, by_disk.lower), fits.lower),
        upper=np.maximum(np.where(waits, np.minimum(fits.upper, by_disk.upper), fits.upper), available),
        binding=np.where(waits & (by_disk.available < fits.available), DISK, fits.binding),
    )
