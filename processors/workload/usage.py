"""One block of pods' usage by class: what each class uses and waits for, and which pods tell nothing of it yet."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level, limit
from processors.estimation.level import quotient
from processors.workload.pods import Pods, never_sleeping, sums

Array = NDArray[np.float64]

CPU, MEMORY = 0, 1

_ABSENT_SECONDS = 10.0  # without any pod: what comes then may be of another kind
_OUTSTANDING, _SLIGHT_CORES = 3.0, 0.05
# Its last second was whole; what a pod uses while it starts is not what it takes, or for longer: see `classes`.
_WHOLE_SECONDS, _STARTING_SECONDS, _YOUNG_SECONDS = 2, 3, 20
_PULLED_SECONDS = 300  # for which a pod may be known before its first container runs
_JUMP, _CREDIBLE = 0.05, 1.25  # of the CPUs
_AWAKE = 0.9  # cores used and waited for
_AT_QUOTA = 0.9  # of the most that such a pod of its class used: a second may have a period of the quota more or less
BOUNDED = 0.5  # of the evidence for a quota, from which on a class has one
_NEVER_SLEPT, _WITH_STEAL = (0.97, 1.01), 0.6  # cores used and waited for, which are not measured at the same instant
_MARKS = ("held", "busy", "busy_with_steal", "whole")  # of pods


class Usage(NamedTuple):
    """One block of each node, by slot.

    Attributes:
        pods: (nodes, slots) running pods.
        new: (nodes, slots) those of them that may have been started since the block before, and may be again.
        recurring: (nodes, slots) those of them after which another like them may come.
        counted: (nodes, slots, resources) those of them whose usage is known.
        used: (nodes, slots, resources) cores and bytes that those use.
        waiting: (nodes, slots) cores that those want beyond it.
        held: (nodes, slots) how many of them a quota holds back.
        busy: (nodes, slots) how many of them never slept, by what they use and their own waiting.
        busy_with_steal: (nodes, slots) how many of them never slept, if the hypervisor took what they lack of a core.
        whole: (nodes, slots) how many of them used a whole number of cores, alone or with what they waited for.
        starting, young: (nodes, slots, 7) of those of them that have just started, and of those that have not run for
            long: number, cores, waiting cores, and what of them is in `held`, `busy`,
            `busy_with_steal` and `whole`.
        brief: (nodes, slots, 3) number, cores and waiting cores of pods that have not run for a whole second, and are
            not counted.
        between: (nodes, slots, resources) variance of what those differ by that have run for longer; NaN: there are not
            two.
        blocked: (nodes, slots) by how many of them, in the mean of the block, a thread waited for I/O.
        watched: (nodes, slots) those of them of which that is known, and which have not just started.
        declared: (nodes, slots) what pods declare, 1: soaking, 0: serving; NaN: nothing.
        unplaced: (nodes,) cores that pods use of which no container runs, as those that crash again and again.
        rest: (nodes, resources) cores and bytes of everything that is in no pod; NaN: not known.
        cached: (nodes,) bytes of working sets, of pods and the system, beyond what the node has in use.
        ceiling: (nodes, slots) most cores that a pod has used which its quota held back.
        quota: (nodes, slots) how much quotas bounded what pods used before, as `classes.State`.
        amount: (nodes, resources) cores and bytes that pods may have.
        cores: (nodes,) CPUs.
        running: (nodes,) cores in use by the newest samples.
        aged: (nodes,) True: the agent says for how long pods run.
        early: (nodes,) True: the CPUs have just filled; the newest samples, which are a second older, do not say so.
        at_us, span: (nodes,) when it was read, and the seconds that it covers.
        gap: (nodes,) seconds since the block before; very many: there was none.
    """

    pods: Array
    new: Array
    recurring: Array
    counted: Array
    used: Array
    waiting: Array
    held: Array
    busy: Array
    busy_with_steal: Array
    whole: Array
    starting: Array
    young: Array
    brief: Array
    between: Array
    blocked: Array
    watched: Array
    declared: Array
    unplaced: Array
    rest: Array
    cached: Array
    ceiling: Array
    quota: Array
    amount: Array
    cores: Array
    running: Array
    aged: NDArray[np.bool_]
    at_us: NDArray[np.int64]
    span: Array
    gap: Array
    early: NDArray[np.bool_]


class Beside(NamedTuple):
    """What is known of the blocks of some nodes beside pods; as in `Usage`."""

    rest: Array
    cached: Array
    ceiling: Array
    quota: Array
    amount: Array
    cores: Array
    running: Array
    aged: NDArray[np.bool_]
    at_us: NDArray[np.int64]
    span: Array
    gap: Array


class _Totals:
    """Adds up pods, (nodes, slots); `at` (pods,) is where, and what is in no slot comes last."""

    def __init__(self, at: NDArray[np.intp], nodes: int, slots: int) -> None:
        self._at, self._shape = at, (nodes, slots)

    def of(self, where: NDArray[np.bool_], values: Array | float = 1.0) -> Array:
        nodes, slots = self._shape
        return sums(self._at, np.where(where, values, 0.0), nodes * slots + 1)[:-1].reshape(self._shape)

    def variance(self, where: NDArray[np.bool_], values: Array) -> Array:
        """Return the variance of some pods' values; NaN: there are not two."""
        number, total, squares = self.of(where), self.of(where, values), self.of(where, values**2)
        beside = np.maximum(squares - quotient(total**2, number), 0.0)
        return np.divide(beside, number - 1, out=np.full_like(number, np.nan), where=number > 1)

    def parts(self, where: NDArray[np.bool_], pods: Pods, *marks: NDArray[np.bool_]) -> Array:
        """Return number, cores and waiting cores of some pods, and how many of them have each mark."""
        amounts = [self.of(where), self.of(where, pods.cores), self.of(where, pods.waiting)]
        return np.stack([*amounts, *(self.of(where & mark) for mark in marks)], axis=-1)


def add_up(
    pods: Pods, slot: NDArray[np.intp], declared: Array, recurring: NDArray[np.bool_], slots: int, beside: Beside
) -> Usage:
    """Add up pods by the slots of their classes.

    Args:
        pods: Pods of one block of each node.
        slot: (pods,) slot of its class; -1: none.
        declared: (pods,) kind that it declares, 1: soaking, 0: serving; NaN: none.
        recurring: (pods,) True: another like it may come.
        slots: Number of slots.
        beside: What else is known of the blocks.
    """
    nodes = len(beside.cores)
    measured, sized = ~np.isnan(pods.cores), ~np.isnan(pods.memory)
    whole = measured & (pods.age >= _WHOLE_SECONDS)
    begun, older = whole & (pods.age < _STARTING_SECONDS), whole & (pods.age >= _STARTING_SECONDS)
    old = pods.age >= _YOUNG_SECONDS
    flat, watched = np.where(slot >= 0, pods.block * slots + slot, nodes * slots), older & ~np.isnan(pods.blocked)
    ceiling, held = _at_quota(pods, flat, beside)
    marks = (whole & held, *_awake(pods, whole))  # in the order of _MARKS
    # A container that runs again is of a pod that is old.
    fresh = ~beside.aged[pods.block] | (pods.age < _PULLED_SECONDS + beside.gap[pods.block])
    totals = _Totals(flat, nodes, slots)
    batch, serving = totals.of(declared == 1.0), totals.of(declared == 0.0)
    return Usage(
        pods=totals.of(slot >= 0),
        new=totals.of((slot >= 0) & recurring & fresh),
        recurring=totals.of((slot >= 0) & recurring),
        counted=np.stack((totals.of(whole), totals.of(sized)), axis=-1),
        used=np.stack((totals.of(whole, pods.cores), totals.of(sized, pods.memory)), axis=-1),
        waiting=totals.of(whole, pods.waiting),
        held=totals.of(marks[0]),
        busy=totals.of(marks[1]),
        busy_with_steal=totals.of(marks[2]),
        whole=totals.of(marks[3]),
        starting=totals.parts(begun, pods, *marks),
        young=totals.parts(older & ~old, pods, *marks),
        brief=totals.parts(measured & ~whole, pods),
        between=np.stack((totals.variance(measured & old, pods.cores), totals.variance(sized & old, pods.memory)), -1),
        blocked=totals.of(watched, pods.blocked),
        watched=totals.of(watched),
        declared=np.where(batch + serving > 0, batch > serving, np.nan),
        early=_early(pods, beside),
        unplaced=sums(pods.block, np.where(slot < 0, np.nan_to_num(pods.cores), 0.0), nodes),
        **beside._replace(ceiling=ceiling)._asdict(),
    )


def _early(pods: Pods, beside: Beside) -> NDArray[np.bool_]:
    """Return `Usage.early`.

    Pods and system are not read at the same instant as the samples, so on a machine that stays just below full a block
    may say that it is full. It has just filled where much more is in use than by the samples, or where pods start.
    """
    share, before = (pods.used[:, CPU] + beside.rest[:, CPU]) / beside.cores, beside.running / beside.cores
    filled = (share >= limit.PLATEAU) & (share <= _CREDIBLE) & (before < limit.PLATEAU)
    start = sums(pods.block, (pods.age < _STARTING_SECONDS).astype(np.float64), len(before)) > 0
    return np.asarray(filled & (start | (share - before > _JUMP)))


def _awake(pods: Pods, whole: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], ...]:
    """Return which of some pods (pods,) are `busy`, `busy_with_steal` and `whole`, as in `Usage`."""
    awake = pods.cores + pods.stalled
    with_steal = whole & (awake >= _WITH_STEAL) & (awake <= _NEVER_SLEPT[1]) & pods.pressure[pods.block]
    # What a pod waits for is estimated where the kernel does not say it; what it uses is measured.
    threads = whole & (never_sleeping(pods.cores) | never_sleeping(pods.cores + pods.waiting))
    return with_steal & (awake >= _NEVER_SLEPT[0]), with_steal, threads


def _at_quota(pods: Pods, flat: NDArray[np.intp], beside: Beside) -> tuple[Array, NDArray[np.bool_]]:
    """Return `Usage.ceiling` after a block, and which pods (pods,) a quota holds back; `flat` (pods,) says where.

    What a quota holds back all the time uses as much as it allows in each second, which no pod of the class exceeds.
    That it hardly sleeps is seen while others leave it a CPU: what it waits for on several is not measured in full.
    """
    ceiling, bounded = np.append(beside.ceiling, np.inf), np.append(beside.quota > BOUNDED, False)
    held = (pods.held >= _AWAKE) | ((pods.held > 0) & bounded[flat])
    np.fmax.at(ceiling, flat, np.where(held, pods.cores, 0.0))
    return ceiling[:-1].reshape(beside.ceiling.shape), held & (pods.cores >= _AT_QUOTA * ceiling[flat])


def absent(usage: Usage, present_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which classes (nodes, slots) last had pods so long ago that what those did says little of new ones."""
    return usage.at_us[:, None] - present_us > _ABSENT_SECONDS * 1e6


def settled(demand: level.State, usage: Usage, evident: NDArray[np.bool_]) -> Usage:
    """Return the block without pods whose start it may be that shows.

    Those that have just started count only where there are no others, and nothing is known of the class: pods may never
    live for long. Young ones are left out where they stand out from older ones.

    Args:
        demand: What the mean pod of each class demands.
        usage: The block.
        evident: (nodes, slots) True: that rests on evidence.
    """
    usage = _without(usage, usage.starting, evident | (usage.counted[..., CPU] > usage.starting[..., 0]))
    number, cores, waiting = usage.young[..., 0], usage.young[..., 1], usage.young[..., 2]
    apart = np.abs(quotient(cores + waiting, number) - np.nan_to_num(demand.mean))
    return _without(usage, usage.young, (usage.counted[..., CPU] > number) & evident & (apart > _bound(demand)))


def beyond(demand: level.State, usage: Usage, rest: Usage) -> Array:
    """Return by how many cores (nodes, slots) a pod that `settled` leaves out uses more than the mean pod; 0: no more.

    Args:
        demand: What the mean pod of each class demands.
        usage: The block.
        rest: What `settled` leaves of it.
    """
    number = usage.counted[..., CPU] - rest.counted[..., CPU]
    more = quotient(usage.used[..., CPU] - rest.used[..., CPU], number) - np.nan_to_num(demand.mean)
    return np.where((number > 0) & (more > _bound(demand)), more, 0.0)


def _bound(demand: level.State) -> Array:
    """Return by how many cores (nodes, slots) pods may differ from the mean pod that do not stand out."""
    return _OUTSTANDING * np.sqrt(demand.variance) + _SLIGHT_CORES


def _without(usage: Usage, some: Array, where: NDArray[np.bool_]) -> Usage:
    """Return the block without some pods (nodes, slots, 7) of the classes where that is so."""
    if not (left := np.where(where, 1.0, 0.0)[..., None] * some).any():
        return usage
    number, cores, waiting, *marked = np.moveaxis(left, -1, 0)
    counted, used = usage.counted.copy(), usage.used.copy()
    counted[..., CPU] -= number
    used[..., CPU] = np.maximum(used[..., CPU] - cores, 0.0)
    return usage._replace(
        counted=counted,
        used=used,
        waiting=np.maximum(usage.waiting - waiting, 0.0),
        **{name: getattr(usage, name) - pods for name, pods in zip(_MARKS, marked, strict=True)},
    )


def without_cpu(usage: Usage, where: NDArray[np.bool_]) -> Usage:
    """Return the block with nothing known of the CPU time of some classes (nodes, slots)."""
    if not where.any():
        return usage
    unknown = np.stack((where, np.zeros_like(where)), axis=-1)
    return usage._replace(counted=np.where(unknown, 0.0, usage.counted), used=np.where(unknown, 0.0, usage.used))


def over_slots(values: Array) -> Array:
    """Sum over slots one after another, so that a node's sum is the same alone as among others."""
    return np.asarray(np.add.accumulate(values, axis=1)[:, -1])
