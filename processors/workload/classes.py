"""What one pod of each workload class takes, by node: its demand for CPUs, its memory, and of which kind it is.

One mean cost misleads where workloads differ: with two classes whose mix changes it is off by pods. So each node has a
few slots, one per class, and in each what the mean pod of the class demands is followed as a level (`level`): a minute
is averaged while it holds, and a pod that has done with its start is believed within seconds. It is learned whenever
pods of the class run, also while their number stands still, since usage is reported per pod. Pods that have just
started count as running, but nothing is learned from them; nor from those a little older while they stand out from what
the class is known to demand, since some starts take long. What those use beyond it is used nevertheless, and may be
what the class takes from now on. Of pods that never live longer see `brief`.

Pods are of two *kinds* (`kind`, `slowdown`): soaking ones always have runnable threads, serving ones wake, work and
sleep. A class of which nothing is known counts as serving, and one that soaks elsewhere as soaking.

What is in no pod is what the node uses less what its pods do. A pod that ends takes its account with it, so in the
second in which pods ended that difference is known between two bounds only, and changes nothing while it lies there.

Memory grows and does not shrink by much, so a pod counts with the most that the mean pod held, which fades. While that
grows, little is known of where it ends.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.estimation.level import quotient
from processors.workload import brief, kind, mix
from processors.workload.capacity import bursts, disk
from processors.workload.pods import never_sleeping
from processors.workload.usage import CPU, MEMORY, Usage, beyond, over_slots, settled, without_cpu

Array = NDArray[np.float64]

EMPTY = -1

_GROWTH = 10.0  # what grows by a tenth in a second leaves a third of the evidence
_REST_SECONDS = 3.0  # a job of a second, as a host runs now and then, takes no room for longer
_BEGUN_SECONDS = 3.0  # of evidence: so far it may be all of pods that were starting
_LITTLE_SECONDS = 15.0  # a node that has run a class for no longer takes the kind that the cluster knows
_SLOW_SECONDS, _DIFFERING_SECONDS = 60.0, 20.0
_MORE = 1.5  # times what is known: it is not true any more where pods use that on a full machine
# Deviation of what a steady pod demands: relative, and its square at least and at most; many small pods change, too.
_STEADY, _FLOORS = 0.1, (1e-6, 1e-4)


class State(NamedTuple):
    """Evidence per node and slot; resources are cpu and memory.

    Attributes:
        label: (nodes, slots) number of the class; EMPTY: no class.
        pods: (nodes, slots) running pods.
        present_us: (nodes, slots) when it last had pods.
        demand: (nodes, slots) cores that the mean pod demands.
        started: (nodes, slots) seconds in which its first pods, while they started, had as many threads that never
            sleep as ever since; they are evidence, too, but the level is without them.
        kind: (nodes, slots) how soaking, 0..1.
        quota: (nodes, slots) how much its pods' CPU quotas bound what they use, 0..1.
        ceiling: (nodes, slots) most cores that a pod used which its quota held back, faded.
        most: (nodes, slots) bytes of the mean pod at its largest, faded.
        between: (nodes, slots, resources) variance of what pods of the class take in a second, around the mean pod.
        held: (nodes, slots) seconds that its memory is known for, faded, and the more so the faster it grew.
        apart: (nodes, slots) cores that a young pod uses beyond the mean pod, where young ones stand out.
        brief: What is known of pods that end within a second.
        bursts: What pods take in bursts.
        rest: (nodes, resources) share of what pods may have that is taken by what is in no pod.
        drift: (nodes, resources) share by which serving classes take more now than their costs say.
        pending: (nodes,) bytes that running pods do not hold yet, but others of their class do.
        cached: (nodes,) bytes of working sets, of pods and the system, beyond what the node has in use: file pages that
            the kernel would drop, but by which the kubelet evicts.
        starts: Pods that were started, by slot.
        disk: What pods wait for at the disks.
        measured: (nodes, resources) True once any pod's usage was reported.
        at_us: (nodes,) time of the newest block; 0: there was none.
    """

    label: NDArray[np.int64]
    pods: Array
    present_us: NDArray[np.int64]
    demand: level.State
    started: Array
    kind: Array
    quota: Array
    ceiling: Array
    most: Array
    between: Array
    held: Array
    apart: Array
    brief: brief.State
    bursts: bursts.State
    rest: level.State
    drift: level.State
    pending: Array
    cached: Array
    starts: mix.State
    disk: disk.State
    measured: NDArray[np.bool_]
    at_us: NDArray[np.int64]


def init(nodes: int, slots: int, resources: int = 2) -> State:
    """Return the state of nodes that run nothing."""
    flat, whole = (nodes, slots), (nodes, resources)
    return State(
        label=np.full(flat, EMPTY, dtype=np.int64),
        pods=np.zeros(flat),
        present_us=np.zeros(flat, dtype=np.int64),
        demand=level.init(nodes, slots),
        started=np.zeros(flat),
        kind=np.zeros(flat),
        quota=np.zeros(flat),
        ceiling=np.zeros(flat),
        most=np.zeros(flat),
        between=np.zeros((*flat, resources)),
        held=np.zeros(flat),
        apart=np.zeros(flat),
        brief=brief.init(nodes, slots),
        bursts=bursts.init(nodes, slots),
        rest=level.init(nodes, resources),
        drift=level.init(nodes, resources),
        pending=np.zeros(nodes),
        cached=np.zeros(nodes),
        starts=mix.init(nodes, slots),
        disk=disk.init(nodes, slots),
        measured=np.zeros(whole, dtype=np.bool_),
        at_us=np.zeros(nodes, dtype=np.int64),
    )


def clear(state: State, node: int, slot: int, label: int, soaking: float) -> None:
    """Give a slot to another class, in place; what was known of the one before is lost."""
    state.label[node, slot], state.kind[node, slot] = label, soaking
    state.pods[node, slot] = state.present_us[node, slot] = 0
    state.quota[node, slot] = state.most[node, slot] = state.held[node, slot] = state.ceiling[node, slot] = 0.0
    state.demand.mean[node, slot] = np.nan
    state.between[node, slot] = state.apart[node, slot] = state.started[node, slot] = 0.0
    disk.clear(state.disk, node, slot)
    brief.clear(state.brief, node, slot)
    bursts.clear(state.bursts, node, slot)
    for part in (*state.demand[1:], state.starts.started, state.starts.recent):
        part[node, slot] = 0.0


def adopt_soaking(state: State, soaking: NDArray[np.int64]) -> State:
    """Return the state with these labels as soaking classes where a node has run them for some seconds at most.

    Pods may end before a node can tell by itself, which takes four seconds of one of them; the cluster can tell.
    """
    little = np.isin(state.label, soaking) & (state.demand.age <= _LITTLE_SECONDS)
    return state._replace(kind=np.where(little, 1.0, state.kind))


def slope(state: State) -> Array:
    """Return the cost (nodes, slots, resources) by evidence alone, 0 where there is none."""
    return np.stack((np.nan_to_num(state.demand.mean), state.most), axis=-1)


def update(state: State, usage: Usage, full: NDArray[np.bool_], hold: NDArray[np.bool_], *, memory: float) -> State:
    """Take in one block of each node.

    Args:
        state: Evidence so far, with a slot for each class of the block that has one.
        usage: The block.
        full: (nodes,) True: no CPU is idle.
        hold: (nodes,) True: containers start or end, so what no pod takes says little.
        memory: Seconds that evidence counts; they pass for a class without pods, too, but not while a level is frozen.
    """
    before = kind.Evidence(state.demand, state.kind, state.quota, state.present_us)
    elapsed = np.where(state.at_us > 0, np.maximum(usage.gap, 0.0), 0.0)
    fade = np.exp(-elapsed / memory)[:, None]
    begun, fleeting = _begun(state, usage), brief.update(state.brief, usage, fade, state.present_us)
    ended = brief.lost(state.pods, state.demand.mean, fleeting, usage)
    fragments = brief.demand(fleeting, ended, state.rest, usage, full)
    grown, seen, usage = bursts.grown(usage), usage, settled(state.demand, usage, before.evident)
    kinds, crowded = kind.after(before, usage, full, fragments), full | usage.early
    evidence = before._replace(kind=kinds, quota=kind.quota(before, usage, crowded))
    demand, frozen = kind.demand(evidence, usage, full)
    # Where ages are not reported, what came since the block before may have run for a part of it only.
    fresh = ~usage.aged[:, None] & (usage.pods > state.pods) & (state.at_us > 0)[:, None]
    usage = without_cpu(usage, fresh)
    demand = np.where(np.isnan(demand), fragments, np.where(fresh, np.nan, demand))
    # Others may keep them from more, and what they wait for is in the samples that come after this block.
    demand = np.where(usage.early[:, None] & before.evident & (demand < state.demand.mean), np.nan, demand)
    here, mean = usage.counted[..., MEMORY] > 0, quotient(usage.used[..., MEMORY], usage.counted[..., MEMORY])
    most = np.where(here, np.maximum(mean, mean + (state.most - mean) * fade), state.most)
    steady = quotient(np.minimum(state.most, most), most) ** _GROWTH
    lasting = _lasting(fade, frozen & ~(demand > _MORE * state.demand.mean), usage, elapsed, memory)
    after = state._replace(
        pods=usage.pods,
        starts=_starts(state, usage, elapsed),
        disk=disk.update(state.disk, usage),
        present_us=np.where(usage.pods > 0, usage.at_us[:, None], state.present_us),
        demand=_followed(_faded(state.demand, begun, lasting), demand, usage, frozen),
        started=_started(state, demand, begun) * lasting,
        kind=evidence.kind,
        quota=evidence.quota,
        ceiling=usage.ceiling * fade,
        most=most,
        between=_between(state.between, usage, crowded, fade),
        held=state.held * fade * steady + np.where(here, usage.span[:, None], 0.0),
        apart=beyond(state.demand, seen, usage),
        brief=fleeting,
        bursts=bursts.update(state.bursts, np.where(grown, demand, np.nan), frozen, evidence.kind, usage, state.pods),
        measured=state.measured | _reported(usage),
        at_us=usage.at_us,
    )
    return _surroundings(after, usage, seen, crowded, hold, ended)


def _lasting(fade: Array, frozen: NDArray[np.bool_], usage: Usage, elapsed: Array, memory: float) -> Array:
    """Return what is left (nodes, slots) of evidence: of what is frozen only the time without any block has gone by."""
    silent = np.exp(-np.maximum(elapsed - usage.span, 0.0) / memory)[:, None]
    return np.where(frozen & (usage.pods > 0), silent, fade)


def _faded(demand: level.State, begun: NDArray[np.bool_], fade: Array) -> level.State:
    """Return the levels with what is left of their evidence; none of classes whose pods have just begun in earnest."""
    return demand._replace(seconds=np.where(begun, 0.0, demand.seconds * fade), age=demand.age * fade)


def _followed(demand: level.State, cores: Array, usage: Usage, frozen: NDArray[np.bool_]) -> level.State:
    """Follow what the mean pod of each class demands; load that comes or goes within a minute or two is no noise."""
    floor = np.clip((_STEADY * np.nan_to_num(demand.mean)) ** 2, *_FLOORS)
    recent, slow = level.moving(demand, _SLOW_SECONDS, floor)
    return level.update(recent, cores, usage.span, frozen, slow=slow, bursts=True, floor=floor)


def _starts(state: State, usage: Usage, elapsed: Array) -> mix.State:
    more, first = usage.pods - state.pods, state.at_us == 0
    starts = mix.update(mix.faded(state.starts, elapsed), state.label, more, usage.new, first)
    # That no other like them comes may be known only after their first block.
    return mix.without(starts, (usage.pods > 0) & (usage.recurring == 0))


def _reported(usage: Usage) -> NDArray[np.bool_]:
    """Return of which resources (nodes, resources) a block has any usage, also of pods just started."""
    left_out = (part[..., 0] for part in (usage.brief, usage.starting, usage.young))
    cpu = np.any(sum(left_out, usage.counted[..., CPU]) > 0, axis=1)
    return np.stack((cpu, np.any(usage.counted[..., MEMORY] > 0, axis=1)), axis=1)


def _between(before: Array, usage: Usage, full: NDArray[np.bool_], fade: Array) -> Array:
    """Follow how much pods differ; on a full machine they differ by who gets the CPUs."""
    seen = ~np.isnan(usage.between)
    seen[..., CPU] &= ~full[:, None]
    gain = -np.expm1(-usage.span / _DIFFERING_SECONDS)[:, None, None]
    return np.where(seen, before + gain * (usage.between - before), before * fade[..., None])


def _begun(state: State, usage: Usage) -> NDArray[np.bool_]:
    """Return of which classes (nodes, slots) all before this block may be of starting pods, and the block is not.

    What pods took while they started, where nothing else was known, does not count beside what they take then.
    """
    return (state.demand.age <= _BEGUN_SECONDS) & (usage.counted[..., CPU] > usage.starting[..., 0])


def _started(state: State, demand: Array, begun: NDArray[np.bool_]) -> Array:
    """Return `State.started` after a block in which the mean pod of each class has a demand (nodes, slots)."""
    if not (begun.any() or state.started.any()):
        return state.started
    mean = state.demand.mean
    same = never_sleeping(mean) & never_sleeping(demand) & (np.round(mean) == np.round(demand))
    kept = state.started + np.where(begun, state.demand.seconds, 0.0)
    return np.where(same | np.isnan(demand), kept, 0.0)


def _surroundings(
    state: State, usage: Usage, seen: Usage, full: NDArray[np.bool_], hold: NDArray[np.bool_], ended: Array
) -> State:
    """Follow what no class explains: what is in no pod, and by how much pods take more than the costs of classes.

    Pods without a slot have no class here. Of memory what is in use is seen as a whole. What young pods use beyond the
    cost of their class is used now (`seen`, the whole block); what they lack of it makes no room.

    A control group takes its account with it when it goes, so what pods that `ended` used counts as used in no pod.
    """
    cores = over_slots(ended[..., None])
    lost = np.concatenate((cores, np.zeros_like(cores)), axis=1)
    rest = usage.rest / usage.amount
    least = np.maximum(rest - lost / usage.amount, 0.0)
    # Between the two bounds of what was in no pod, a block says nothing new.
    informative = np.where((lost > 0) & (least <= state.rest.mean) & (state.rest.mean <= rest), np.nan, rest)
    rest = np.where((lost > 0) & (state.rest.mean < least), least, informative)
    cost = np.where(state.label[..., None] >= 0, slope(state), 0.0)
    more = np.maximum(usage.used - cost * usage.counted, seen.used - cost * seen.counted)
    serving = np.where((state.kind <= kind.SOAKING)[..., None], more, 0.0)
    drift = over_slots(serving)
    # Pods on a full machine get less than they want, so taking less than their cost says nothing there.
    drift[:, CPU] = np.maximum(drift[:, CPU], np.where(full, 0.0, -np.inf)) + usage.unplaced
    still = np.zeros((len(hold), 1), dtype=np.bool_)
    follow = partial(level.update, slow=level.SLOW_SECONDS, bursts=True)
    pending = np.maximum(state.most * usage.pods - usage.used[..., MEMORY], 0.0)
    return state._replace(
        rest=follow(state.rest, rest, usage.span, hold[:, None], fast=_REST_SECONDS),
        drift=follow(state.drift, drift / usage.amount, usage.span, still),
        pending=over_slots(pending),
        cached=usage.cached,
    )
