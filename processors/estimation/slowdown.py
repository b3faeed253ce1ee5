"""How much of a machine's CPUs may be demanded while work on it is slowed down by at most s.

Slowdown is the time that work takes over the time that it takes alone. Two kinds of pods meet it differently.

*Serving* pods are an open loop: they wake, work and sleep, whatever their answers take. For c CPUs that share demand
rho c fairly, the mean slowdown is that of M/M/c processor sharing, `1 + ErlangC(c, c rho) / (c (1 - rho))`; inverted
it gives the share rho*(s, c) of the CPUs that may be demanded. Erlang's C follows from his B by the recursion
`B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1))`, `C = B / (1 - rho (1 - B))` (Cooper, Introduction to Queueing Theory, 2nd
edition, 1981, section 3.5). Written out it is `1/B = 1 + c/a + c (c-1)/a^2 + ...`, a sum of positive terms.

*Soaking* pods are a closed loop: their threads are always runnable, so n threads on c CPUs run n/c times slower, and
s c of them hold.

A serving pod of few threads also makes its requests wait for each other, alone already, and the more the slower it is:
with one thread that is busy for a share u of the time alone, responses are slowed down by S (1 - u) / (1 - u S) where
CPU time is by S (M/M/1 with a service that takes S times as long). How many threads a pod has is not known, so half
of its demand counts as u, which bounds S to s / (1 + u (s - 1)).

A node that runs both is full when the shares add up to one: `L / (rho* c) + B / (s c) = 1` for a serving demand of L
cores and B soaking threads.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LARGE = 4096  # beyond it the share is within 0.002 of 1
_USUAL = 512  # CPUs up to which B is that of the recursion, whose last digits differ from those of the sum
_STEPS = 60
_IN_LINE = 0.5  # of a pod's demand: the share of time that its requests find it busy
_CURVE = 1.3


# All sizes that a node may claim, each for the slowdown that is allowed and for the one that bounds its queueing.
@lru_cache(maxsize=2 * _LARGE)
def share(slowdown: float, cpus: int) -> float:
    """Return the share rho* of so many CPUs that serving pods may demand; 0 for a slowdown of 1.

    >>> [round(share(2.0, cpus), 3) for cpus in (1, 2, 4, 8, 16, 64)]
    [0.5, 0.707, 0.835, 0.909, 0.951, 0.986]
    """
    cpus = min(max(cpus, 1), _LARGE)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle, cpus) <= slowdown else (low, middle)
    return low


def mean(demand: float, cpus: int) -> float:
    """Return the mean slowdown at a demand of so large a share, 0..1, of the CPUs.

    >>> round(mean(0.5, 1), 6), round(mean(0.5, 2), 6)
    (2.0, 1.333333)
    """
    if demand >= 1:
        return float("inf")
    blocked = _blocked(demand * cpus, cpus)
    waits = blocked / (1 - demand * (1 - blocked))
    return 1 + waits / (cpus * (1 - demand))


def _blocked(offered: float, cpus: int) -> float:
    """Return Erlang's B; for thousands of CPUs the sum takes a fiftieth of the time of the recursion."""
    if cpus > _USUAL:
        with np.errstate(over="ignore", divide="ignore"):  # an infinite sum: nothing is blocked
            return float(1.0 / (1.0 + np.cumprod(np.arange(cpus, 0, -1) / offered).sum()))
    blocked = 1.0
    for server in range(1, cpus + 1):
        blocked = offered * blocked / (server + offered * blocked)
    return blocked


def cores(slowdown: float, cpus: Array) -> Array:
    """Return the cores (nodes,) that serving pods may demand of machines with so many CPUs (nodes,)."""
    return _each(lambda count: share(slowdown, count) * count, cpus)


def queueing(slowdown: float, cpus: Array) -> Array:
    """Return by how much more than its demand a pod of one core counts (nodes,), since its requests wait in line."""
    bounded = slowdown / (1 + _IN_LINE * (slowdown - 1))
    return _each(lambda count: share(slowdown, count) / share(bounded, count) - 1, cpus)


def weight(demand: Array, queueing: Array) -> Array:
    """Return by what a serving pod's demand of so many cores is multiplied to count its requests' own line.

    Between no line at 0 and `queueing` at one core the exponent follows the exact bound within 0.01 on two CPUs.
    """
    return 1.0 + queueing * np.minimum(demand, 1.0) ** _CURVE


def _each(value: Callable[[int], float], cpus: Array) -> Array:
    """Return a value of each machine (nodes,), computed once for each size."""
    counts, inverse = np.unique(cpus, return_inverse=True)
    return np.array([value(round(count)) for count in counts.tolist()])[inverse]
