"""Share of the node's CPU pressure that quotas cause, and not a lack of CPU.

A thread that its cgroup's quota throttles does not run, but counts as waiting: one busy thread with 0.3 CPU raises
`some` of a 15 % busy machine to 0.7. Per second the agent measures the pressure P, the mean number of busy CPUs B,
and the total throttled time T. To attribute all of T to quotas is wrong when the machine is also full, because both
kinds of waiting overlap. So

    P - T / B  <=  real pressure  <=  P

with equality on the left if no other thread waited while a quota throttled one. Between the two limits the agent
samples the true value: the kernel's number of runnable threads excludes throttled ones, and the mean excess
clip((threads - CPUs) / CPUs, 0, 1) is the pressure in this model. The kernel renews quotas every 100 ms, which is also
the interval of the samples, so periodic samples would always see the same phase: hence these samples are at random
times. Twenty a second cost 0.1 % of a core; the agent takes none while no cgroup with a quota runs.
"""

from typing import Protocol

from producers.source import NO_FACTS, Values, clip

_SLIGHT = 1e-3


def excess(runnable: int, cpus: int) -> float:
    """Return the share of a node that waits with so many runnable threads, 0..1.

    >>> excess(2, 2), excess(3, 2), excess(9, 2)
    (0.0, 0.5, 1.0)
    """
    return clip((runnable - cpus) / cpus)


def quota_share(pressure: float, throttled: float, busy: float, waiting: float) -> float:
    """Return the share of the pressure that quotas cause, 0..1.

    Args:
        pressure: Share of time that some thread waited.
        throttled: Throttled time, summed over CPUs and cgroups, divided by time.
        busy: Mean number of busy CPUs.
        waiting: Mean `excess` of threads that wait only for CPU.

    >>> quota_share(0.7, 0.7, 0.3, 0.0), quota_share(1.0, 0.7, 2.0, 1.0), quota_share(0.5, 0.5, 2.0, 0.0)
    (1.0, 0.0, 0.5)
    """
    if pressure < _SLIGHT or throttled <= 0:
        return 0.0
    certain = pressure - throttled / busy if busy > 0 else 0.0
    return clip(1.0 - max(certain, min(waiting, pressure)) / pressure)


class Newest(Protocol):
    """Provider of the share."""

    def quota_share(self) -> float | None:
        """Return the share over the last second; None: unknown."""


class Throttle:
    """Share of the node's CPU pressure that quotas cause; None if unknown."""

    name = "throttle"
    metrics = ("cpu_throttled",)
    path = None
    optional = False
    facts = NO_FACTS

    def __init__(self, newest: Newest | None) -> None:
        self._newest = newest

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - another thread measures it
        """Return the newest share."""
        return (None if self._newest is None else self._newest.quota_share(),)
