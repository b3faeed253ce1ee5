"""One block of pods' usage by class: what each class uses and waits for, and which pods tell nothing of it yet."""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.estimation.level import quotient
from schemas.messages.telemetry import OLD_SECONDS, PodUsageBlock

Array = NDArray[np.float64]

CPU, MEMORY = 0, 1

_ABSENT_SECONDS = 10.0  # without any pod: what comes then may be of another kind
_OUTSTANDING, _SLIGHT_CORES = 3.0, 0.05
# Its last second was whole; what a pod uses while it starts is not what it takes, or for longer: see `classes`.
_WHOLE_SECONDS, _STARTING_SECONDS, _YOUNG_SECONDS = 2, 3, 20
_PULLED_SECONDS = 300  # for which a pod may be known before its first container runs
_HELD_BACK, _AWAKE = 0.2, 0.9  # share of time that a quota keeps a pod waiting; cores used and waited for
_AT_QUOTA = 0.9  # of the most that such a pod of its class used: a second may have a period of the quota more or less
BOUNDED = 0.5  # of the evidence for a quota, from which on a class has one
_NEVER_SLEPT, _WITH_STEAL = (0.97, 1.01), 0.6  # cores used and waited for, which are not measured at the same instant


class Usage(NamedTuple):
    """One block of each node, by slot.

    Attributes:
        pods: (nodes, slots) running pods.
        new: (nodes, slots) those of them that may have been started since the block before, and may be again.
        counted: (nodes, slots, resources) those of them whose usage is known.
        used: (nodes, slots, resources) cores and bytes that those use.
        waiting: (nodes, slots) cores that those want beyond it.
        held: (nodes, slots) how many of them a quota holds back.
        busy: (nodes, slots) how many of them never slept, by what they use and their own waiting.
        busy_with_steal: (nodes, slots) how many of them never slept, if the hypervisor took what they lack of a core.
        starting, young: (nodes, slots, 6) of those of them that have just started, and of those that have not run for
            long: number, cores, waiting cores, and what of them is in `held`, `busy` and `busy_with_steal`.
        brief: (nodes, slots, 3) number, cores and waiting cores of pods that have not run for a whole second, and are
            not counted.
        blocked: (nodes, slots) by how many of them, in the mean of the block, a thread waited for I/O.
        watched: (nodes, slots) those of them of which that is known, and which have not just started.
        declared: (nodes, slots) what pods declare, 1: soaking, 0: serving; NaN: nothing.
        unplaced: (nodes,) cores that pods use of which no container runs, as those that crash again and again.
        rest: (nodes, resources) cores and bytes of everything that is in no pod; NaN: not known.
        cached: (nodes,) bytes of pods' working sets beyond what the node has in use.
        ceiling: (nodes, slots) most cores that a pod has used which its quota held back.
        quota: (nodes, slots) how much quotas bounded what pods used before, as `classes.State`.
        amount: (nodes, resources) cores and bytes that pods may have.
        cores: (nodes,) CPUs.
        aged: (nodes,) True: the agent says for how long pods run.
        at_us, span: (nodes,) when it was read, and the seconds that it covers.
        gap: (nodes,) seconds since the block before; very many: there was none.
    """

    pods: Array
    new: Array
    counted: Array
    used: Array
    waiting: Array
    held: Array
    busy: Array
    busy_with_steal: Array
    starting: Array
    young: Array
    brief: Array
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
    aged: NDArray[np.bool_]
    at_us: NDArray[np.int64]
    span: Array
    gap: Array


class Pods(NamedTuple):
    """All pods of some blocks, one block after another; and what is known of each block.

    Attributes:
        block: (pods,) number of its block.
        cores, memory: (pods,) cores and bytes that it uses; NaN: not known.
        stalled: (pods,) how much it waited for a CPU, compared with the other pods of its block.
        held: (pods,) cores that it uses and waits for where its quota keeps it waiting, at least; elsewhere 0.
        blocked: (pods,) share of time that one of its threads waited for I/O; NaN: not known.
        age: (pods,) seconds for which it runs.
        pressure: (blocks,) `stalled` is made of pressures; else of CPU use.
        used: (blocks, resources) cores and bytes of all pods.
        waited: (blocks,) sum of `stalled`, and of the rest of the system where that is made of CPU use.
    """

    block: NDArray[np.intp]
    cores: Array
    memory: Array
    stalled: Array
    held: Array
    blocked: Array
    age: Array
    pressure: NDArray[np.bool_]
    used: Array
    waited: Array


def pods_of(blocks: Sequence[PodUsageBlock]) -> Pods:
    """Collect the pods of some blocks.

    While some thread of a pod waits for a CPU, at least one core is missing; in a pod that uses several, about as many.
    What its own quota makes it wait is not counted. Where the kernel has no pressure per control group, pods and the
    rest of the system are taken to stall as much as they run.

    A service may use half of its quota and wait for it in a third of its time, for a request may need more at once; it
    sleeps in the rest, and what it uses differs from second to second (`add_up`).
    """
    sizes = [len(block.pods) for block in blocks]
    block = np.repeat(np.arange(len(blocks)), sizes)

    def column(lists: Iterable[Iterable[float | None]]) -> Array:
        return np.array(list(chain.from_iterable(lists)), dtype=np.float64)

    def of_block(values: Array) -> Array:
        return _sums(block, values, len(blocks))

    cores, memory = column(each.cpu_cores for each in blocks), column(each.memory_bytes for each in blocks)
    pressed, held = column(each.cpu_pressure for each in blocks), column(each.throttled for each in blocks)
    ages = column(each.ages or repeat(OLD_SECONDS, len(each.pods)) for each in blocks)
    pressure = of_block(~np.isnan(pressed)) > 0
    quota, running = np.nan_to_num(held), np.nan_to_num(cores)
    waited = np.maximum(np.nan_to_num(pressed) - quota, 0.0) * np.maximum(running, 1.0)
    stalled = np.where(pressure[block], waited, running)
    system = np.where(pressure, 0.0, [each.system_cpu_cores or 0.0 for each in blocks])
    return Pods(
        block=block,
        cores=cores,
        memory=memory,
        stalled=stalled,
        held=np.where(quota > _HELD_BACK, running + np.maximum(quota, np.nan_to_num(pressed)), 0.0),
        blocked=column(each.io_pressure for each in blocks),
        age=ages,
        pressure=pressure,
        used=np.stack((of_block(running), of_block(np.nan_to_num(memory))), axis=1),
        waited=system + of_block(stalled),
    )


class Beside(NamedTuple):
    """What is known of the blocks of some nodes beside pods; as in `Usage`."""

    rest: Array
    cached: Array
    ceiling: Array
    quota: Array
    amount: Array
    cores: Array
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
        return _sums(self._at, np.where(where, values, 0.0), nodes * slots + 1)[:-1].reshape(self._shape)

    def parts(self, where: NDArray[np.bool_], pods: Pods, *marks: NDArray[np.bool_]) -> Array:
        """Return number, cores and waiting cores of some pods, and how many of them have each mark."""
        amounts = [self.of(where), self.of(where, pods.cores), self.of(where, pods.stalled)]
        return np.stack([*amounts, *(self.of(where & mark) for mark in marks)], axis=-1)


def add_up(
    pods: Pods, slot: NDArray[np.intp], declared: Array, recurring: NDArray[np.bool_], slots: int, beside: Beside
) -> Usage:
    """Add up pods by the slots of their classes; `waiting` is as `Pods.stalled` yet.

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
    awake = pods.cores + pods.stalled
    with_steal = whole & (awake >= _WITH_STEAL) & (awake <= _NEVER_SLEPT[1]) & pods.pressure[pods.block]
    busy = with_steal & (awake >= _NEVER_SLEPT[0])
    flat, watched = np.where(slot >= 0, pods.block * slots + slot, nodes * slots), older & ~np.isnan(pods.blocked)
    ceiling, held = _at_quota(pods, flat, beside)
    # A container that runs again is of a pod that is old.
    fresh = ~beside.aged[pods.block] | (pods.age < _PULLED_SECONDS + beside.gap[pods.block])
    totals = _Totals(flat, nodes, slots)
    batch, serving = totals.of(declared == 1.0), totals.of(declared == 0.0)
    return Usage(
        pods=totals.of(slot >= 0),
        new=totals.of((slot >= 0) & recurring & fresh),
        counted=np.stack((totals.of(whole), totals.of(sized)), axis=-1),
        used=np.stack((totals.of(whole, pods.cores), totals.of(sized, pods.memory)), axis=-1),
        waiting=totals.of(whole, pods.stalled),
        held=totals.of(whole & held),
        busy=totals.of(busy),
        busy_with_steal=totals.of(with_steal),
        starting=totals.parts(begun, pods, held, busy, with_steal),
        young=totals.parts(older & (pods.age < _YOUNG_SECONDS), pods, held, busy, with_steal),
        brief=totals.parts(measured & ~whole, pods),
        blocked=totals.of(watched, pods.blocked),
        watched=totals.of(watched),
        declared=np.where(batch + serving > 0, batch > serving, np.nan),
        unplaced=_sums(pods.block, np.where(slot < 0, np.nan_to_num(pods.cores), 0.0), nodes),
        **beside._replace(ceiling=ceiling)._asdict(),
    )


def _at_quota(pods: Pods, flat: NDArray[np.intp], beside: Beside) -> tuple[Array, NDArray[np.bool_]]:
    """Return `Usage.ceiling` after a block, and which pods (pods,) a quota holds back; `flat` (pods,) says where.

    What a quota holds back all the time uses as much as it allows in each second, which no pod of the class exceeds.
    That it hardly sleeps is seen while others leave it a CPU: what it waits for on several is not measured in full.
    """
    ceiling, bounded = np.append(beside.ceiling, np.inf), np.append(beside.quota > BOUNDED, False)
    held = (pods.held >= _AWAKE) | ((pods.held > 0) & bounded[flat])
    np.fmax.at(ceiling, flat, np.where(held, pods.cores, 0.0))
    return ceiling[:-1].reshape(beside.ceiling.shape), held & (pods.cores >= _AT_QUOTA * ceiling[flat])


def _sums(at: NDArray[np.intp], values: Array, count: int) -> Array:
    """Add up values by number, in order; of no values numpy would return whole numbers."""
    return np.bincount(at, values, count).astype(np.float64, copy=False)


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
    bound = _OUTSTANDING * np.sqrt(demand.variance) + _SLIGHT_CORES
    return _without(usage, usage.young, (usage.counted[..., CPU] > number) & evident & (apart > bound))


def _without(usage: Usage, some: Array, where: NDArray[np.bool_]) -> Usage:
    """Return the block without some pods (nodes, slots, 6) of the classes where that is so."""
    if not (left := np.where(where, 1.0, 0.0)[..., None] * some).any():
        return usage
    number, cores, waiting, held, busy, with_steal = np.moveaxis(left, -1, 0)
    counted, used = usage.counted.copy(), usage.used.copy()
    counted[..., CPU] -= number
    used[..., CPU] = np.maximum(used[..., CPU] - cores, 0.0)
    return usage._replace(
        counted=counted,
        used=used,
        waiting=np.maximum(usage.waiting - waiting, 0.0),
        held=usage.held - held,
        busy=usage.busy - busy,
        busy_with_steal=usage.busy_with_steal - with_steal,
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
