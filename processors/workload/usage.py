"""One block of pods' usage by class: what each class uses and waits for, and which pods tell nothing of it yet."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.workload.pod_class import Sum

Array = NDArray[np.float64]

CPU, MEMORY = 0, 1

_OUTSTANDING, _SLIGHT_CORES = 3.0, 0.05


class Usage(NamedTuple):
    """One block of each node, by slot.

    Attributes:
        pods: (nodes, slots) running pods.
        counted: (nodes, slots, resources) those of them whose usage is known.
        used: (nodes, slots, resources) cores and bytes that those use.
        waiting: (nodes, slots) cores that those want beyond it.
        held: (nodes, slots) how many of them a quota holds back.
        busy: (nodes, slots) how many of them never slept, by what they use and their own waiting.
        starting, young: (nodes, slots, 3) number, cores and waiting cores of those of them that have just started, and
            of those that have not run for long.
        brief: (nodes, slots, 3) the same of pods that have not run for a whole second, and are not counted.
        blocked: (nodes, slots) by how many of them, in the mean of the block, a thread waited for I/O.
        watched: (nodes, slots) those of them of which that is known, and which have not just started.
        declared: (nodes, slots) what pods declare, 1: soaking, 0: serving; NaN: nothing.
        rest: (nodes, resources) cores and bytes of everything that is in no pod; NaN: not known.
        amount: (nodes, resources) cores and bytes that pods may have.
        cores: (nodes,) CPUs.
        aged: (nodes,) True: the agent says for how long pods run.
        at_us: (nodes,) when it was read.
        span: (nodes,) seconds that it covers.
    """

    pods: Array
    counted: Array
    used: Array
    waiting: Array
    held: Array
    busy: Array
    starting: Array
    young: Array
    brief: Array
    blocked: Array
    watched: Array
    declared: Array
    rest: Array
    amount: Array
    cores: Array
    aged: NDArray[np.bool_]
    at_us: NDArray[np.int64]
    span: Array


def empty(
    slots: int, *, rest: Array, amount: Array, cores: Array, aged: list[bool], at_us: list[int], span: list[float]
) -> Usage:
    """Return blocks without pods; see `Usage`."""
    flat = (len(cores), slots)
    return Usage(
        pods=np.zeros(flat),
        counted=np.zeros((*flat, 2)),
        used=np.zeros((*flat, 2)),
        waiting=np.zeros(flat),
        held=np.zeros(flat),
        busy=np.zeros(flat),
        starting=np.zeros((*flat, 3)),
        young=np.zeros((*flat, 3)),
        brief=np.zeros((*flat, 3)),
        blocked=np.zeros(flat),
        watched=np.zeros(flat),
        declared=np.full(flat, np.nan),
        rest=rest,
        amount=amount,
        cores=cores,
        aged=np.array(aged),
        at_us=np.array(at_us, dtype=np.int64),
        span=np.array(span),
    )


def fill(usage: Usage, sums: Sequence[tuple[int, int, Sum, bool]]) -> None:
    """Write sums over pods into the block, in place, each with its node, its slot, and whether pressure is measured."""
    if not sums:
        return
    flat = np.array(
        [
            (
                index, slot, item.running, *item.counted, *item.used, item.stalled, item.held,
                item.busy if pressure else 0, *item.starting, *item.young, *item.brief, *item.blocked,
                np.nan if item.soaking is None else item.soaking,
            )
            for index, slot, item, pressure in sums
        ],
        dtype=np.float64,
    )  # fmt: skip
    at = flat[:, 0].astype(np.intp), flat[:, 1].astype(np.intp)
    usage.pods[at] = flat[:, 2]
    usage.counted[at], usage.used[at] = flat[:, 3:5], flat[:, 5:7]
    usage.waiting[at], usage.held[at], usage.busy[at] = flat[:, 7], flat[:, 8], flat[:, 9]
    usage.starting[at], usage.young[at], usage.brief[at] = flat[:, 10:13], flat[:, 13:16], flat[:, 16:19]
    usage.blocked[at], usage.watched[at], usage.declared[at] = flat[:, 19], flat[:, 20], flat[:, 21]


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
    """Return the block without some pods (nodes, slots, 3) of the classes where that is so."""
    left = np.where(where, 1.0, 0.0)[..., None] * some
    if not left.any():
        return usage
    counted, used = usage.counted.copy(), usage.used.copy()
    counted[..., CPU] -= left[..., 0]
    used[..., CPU] = np.maximum(used[..., CPU] - left[..., 1], 0.0)
    return usage._replace(counted=counted, used=used, waiting=np.maximum(usage.waiting - left[..., 2], 0.0))


def quotient(over: Array, under: Array) -> Array:
    """Divide; 0 where there is nothing to divide by."""
    return np.divide(over, under, out=np.zeros(np.broadcast(over, under).shape), where=under > 0)


def over_slots(values: Array) -> Array:
    """Sum over slots one after another, so that a node's sum is the same alone as among others."""
    return np.asarray(np.add.accumulate(values, axis=1)[:, -1])
