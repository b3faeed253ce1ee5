"""The pods of some blocks one after another: what each uses and waits for."""

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.messages.telemetry import OLD_SECONDS, PodUsageBlock

Array = NDArray[np.float64]

_HELD_BACK = 0.2  # share of time that a quota keeps a pod waiting
_OVER, _UNDER = 0.006, 0.05  # how far from a whole number of cores a soaking pod is, relative
_MOST_OVER, _MOST_UNDER = 0.02, 0.15  # and at most, in cores: of ten cores and more anything would be near


class Pods(NamedTuple):
    """All pods of some blocks, one block after another; and what is known of each block.

    Attributes:
        block: (pods,) number of its block.
        cores, memory: (pods,) cores and bytes that it uses; NaN: not known.
        stalled: (pods,) how much it waited for a CPU, compared with the other pods of its block.
        waiting: (pods,) cores that it wants beyond those it uses: its part of what the node's pods wait for.
        held: (pods,) cores that it uses and waits for where its quota keeps it waiting, at least; elsewhere 0.
        blocked: (pods,) share of time that one of its threads waited for I/O; NaN: not known.
        age: (pods,) seconds for which it runs.
        pressure: (blocks,) `stalled` is made of pressures; else of CPU use.
        used: (blocks, resources) cores and bytes of all pods.
    """

    block: NDArray[np.intp]
    cores: Array
    memory: Array
    stalled: Array
    waiting: Array
    held: Array
    blocked: Array
    age: Array
    pressure: NDArray[np.bool_]
    used: Array


def pods_of(blocks: Sequence[PodUsageBlock], waiting: Array, cpus: Array) -> Pods:
    """Collect the pods of some blocks.

    While some thread of a pod waits for a CPU, at least one core is missing; in a pod that uses several, about as many.
    What its own quota makes it wait is not counted. Where the kernel has no pressure per control group, pods and the
    rest of the system are taken to stall as much as they run.

    A service may use half of its quota and wait for it in a third of its time, for a request may need more at once; it
    sleeps in the rest, and what it uses differs from second to second (`usage.add_up`).

    Args:
        blocks: One block of each of some nodes.
        waiting: (blocks,) cores that the threads of the node wait for.
        cpus: (blocks,) CPUs of the node.
    """
    sizes = [len(block.pods) for block in blocks]
    block = np.repeat(np.arange(len(blocks)), sizes)

    def column(lists: Iterable[Iterable[float | None]]) -> Array:
        return np.array(list(chain.from_iterable(lists)), dtype=np.float64)

    def of_block(values: Array) -> Array:
        return sums(block, values, len(blocks))

    cores, memory = column(each.cpu_cores for each in blocks), column(each.memory_bytes for each in blocks)
    pressed, held = column(each.cpu_pressure for each in blocks), column(each.throttled for each in blocks)
    ages = column(each.ages or repeat(OLD_SECONDS, len(each.pods)) for each in blocks)
    pressure = of_block(~np.isnan(pressed)) > 0
    quota, running = np.nan_to_num(held), np.nan_to_num(cores)
    waited = np.maximum(np.nan_to_num(pressed) - quota, 0.0) * np.maximum(running, 1.0)
    stalled = np.where(pressure[block], waited, running)
    system = np.where(pressure, 0.0, [each.system_cpu_cores or 0.0 for each in blocks])
    # A host whose own processes wait, and no pod does, owes its pods nothing.
    whole = np.maximum(system + of_block(stalled), pressure * waiting / cpus)[block]
    # First the share, which is at most 1: what a hair's breadth of waiting is divided by may be as thin.
    share = np.divide(stalled, whole, out=np.zeros_like(stalled), where=whole > 0)
    return Pods(
        block=block,
        cores=cores,
        memory=memory,
        stalled=stalled,
        waiting=share * waiting[block],
        held=np.where(quota > _HELD_BACK, running + np.maximum(quota, np.nan_to_num(pressed)), 0.0),
        blocked=column(each.io_pressure for each in blocks),
        age=ages,
        pressure=pressure,
        used=np.stack((of_block(running), of_block(np.nan_to_num(memory))), axis=1),
    )


def never_sleeping(cores: Array) -> NDArray[np.bool_]:
    """Return where cores are those of a whole number of threads that never sleep.

    Not even such a thread uses more than a core, which noise around a core does half of the time.
    """
    nearest = np.round(cores)
    over, under = np.minimum(_OVER * nearest, _MOST_OVER), np.minimum(_UNDER * nearest, _MOST_UNDER)
    return np.asarray((nearest >= 1) & (cores <= nearest + over) & (cores >= nearest - under))


def sums(at: NDArray[np.intp], values: Array, count: int) -> Array:
    """Add up values by number, in order; of no values numpy would return whole numbers."""
    return np.bincount(at, values, count).astype(np.float64, copy=False)
