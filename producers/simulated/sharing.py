"""What a kernel shows of runnable threads that share its CPUs fairly: soaking ones never sleep, serving ones do.

While n threads are runnable on c CPUs each has min(1, c/n) of one, so n soaking threads alone show a pressure of
clip((n - c)/c, 0, 1); a quiet machine with two CPUs showed 0.5 at three threads and 1.0 at four.

Serving work that comes at random and demands L cores has k runnable threads beside b soaking ones. That is a
birth-death chain with births L and deaths k min(c, k + b)/(k + b) in units of work, so its stationary probabilities
are p(k) = p(k - 1) L (k + b)/(k min(c, k + b)); for b = 0 it is M/M/c. Where more work comes than there are CPUs
there are none, and the queue is as long as it may become here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LONGEST, _LONGEST_PER_CPU = 64, 8


class Shared(NamedTuple):
    """What follows from a demand; all of the shape of the demand.

    Attributes:
        used: CPUs in use.
        pressure: Share of CPUs beside which a thread waits, 0..1.
        runnable: Runnable threads at one moment.
        served: Share of the serving demand that is worked off.
        slowdown: By how much longer serving work takes than alone.
        soaked: CPUs that each soaking thread has.
    """

    used: Array
    pressure: Array
    runnable: Array
    served: Array
    slowdown: Array
    soaked: Array


def share(cpus: NDArray[np.int64], demand: Array, threads: Array, moment: Array) -> Shared:
    """Return what nodes show.

    Args:
        cpus: (nodes,) CPUs.
        demand: (nodes, samples) cores that serving threads demand, above 0.
        threads: (nodes, samples) soaking threads.
        moment: (nodes, samples) within 0..1: which moment is looked at, from the quietest to the busiest.
    """
    shared = Shared(*(np.empty(demand.shape) for _ in Shared._fields))
    for count in np.unique(cpus).tolist():  # each size by itself: a node's metrics depend on no other node
        rows = cpus == count
        part = _alike(count, demand[rows], threads[rows], moment[rows])
        for column, values in zip(shared, part, strict=True):
            column[rows] = values
    return shared


def _alike(cpus: int, demand: Array, threads: Array, moment: Array) -> Shared:
    longest = _LONGEST + _LONGEST_PER_CPU * cpus
    serving = np.arange(longest + 1, dtype=np.float64)
    every = serving + threads[..., None]
    busy = np.minimum(every, cpus)
    steps = demand[..., None] * every[..., 1:] / (serving[1:] * busy[..., 1:])
    # In logarithms: products of so many steps are beyond what a number holds.
    logarithms = np.zeros(every.shape)
    np.cumsum(np.log(steps), axis=-1, out=logarithms[..., 1:])
    likely = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    likely /= likely.sum(axis=-1, keepdims=True)

    def mean(values: Array) -> Array:
        return np.asarray((likely * values).sum(axis=-1))

    each = busy / np.maximum(every, 1.0)
    done = mean(serving * each)
    return Shared(
        used=mean(busy),
        pressure=mean(np.clip(every - cpus, 0, cpus)) / cpus,
        runnable=threads + (np.cumsum(likely, axis=-1) < moment[..., None]).sum(axis=-1),
        served=np.minimum(done / demand, 1.0),
        slowdown=np.maximum(mean(serving) / done, 1.0),
        soaked=mean(each),
    )
