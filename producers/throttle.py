"""How much of the node's CPU pressure is owed to quotas, and not to a lack of CPU.

A thread that its cgroup's quota holds back is not run, but still counts as waiting: one busy thread with 0.3 CPU
drives `some` of a 15 % busy machine to 0.7. Per second we know the pressure P, the CPUs busy on average B, and for
how long each quota held back, T in total. Taking all of T for owed to quotas goes wrong when the machine is full as
well, because both kinds of waiting overlap. So

    P - T / B  <=  real pressure  <=  P

with equality on the left if no other thread waited while a quota held one back; in between, the true value is looked
up: the number of threads that the kernel has to run leaves out those that are held back, and the mean excess
clip((threads - CPUs) / CPUs, 0, 1) is what pressure means in this model. Quotas are renewed every 100 ms, the samples
are taken every 100 ms, and what moves in step would be seen at one phase for ever: hence these looks come at random
moments. Twenty a second cost 0.1 % of a core, and there are none as long as nothing runs that has a quota.
"""

from typing import Protocol

from producers.source import NO_FACTS, Values, clip

_SLIGHT = 1e-3


def excess(runnable: int, cpus: int) -> float:
    """Return how much of a node waits if so many threads want to run, 0..1.

    >>> excess(2, 2), excess(3, 2), excess(9, 2)
    (0.0, 0.5, 1.0)
    """
    return clip((runnable - cpus) / cpus)


def owed(pressure: float, throttled: float, busy: float, waiting: float) -> float:
    """Return the share of the pressure that is owed to quotas, 0..1.

    Args:
        pressure: Share of time that some thread waited.
        throttled: Time that quotas held back, added up over CPUs and cgroups, over time.
        busy: CPUs busy on average.
        waiting: Mean `excess` of threads that nothing but a lack of CPU held back.

    >>> owed(0.7, 0.7, 0.3, 0.0), owed(1.0, 0.7, 2.0, 1.0), owed(0.5, 0.5, 2.0, 0.0)
    (1.0, 0.0, 0.5)
    """
    if pressure < _SLIGHT or throttled <= 0:
        return 0.0
    certain = pressure - throttled / busy if busy > 0 else 0.0
    return clip(1.0 - max(certain, min(waiting, pressure)) / pressure)


class Newest(Protocol):
    """Who knows the share."""

    def owed(self) -> float | None:
        """Return the share over the second that has just passed; None: it is not known (any more)."""


class Throttle:
    """Share of the node's CPU pressure that is owed to quotas; None where nobody knows it."""

    name = "throttle"
    metrics = ("cpu_throttled",)
    path = None
    optional = False
    facts = NO_FACTS

    def __init__(self, newest: Newest | None) -> None:
        self._newest = newest

    def measure(self, content: bytes, now: float) -> Values:  # noqa: ARG002 - known by another thread
        """Ask."""
        return (None if self._newest is None else self._newest.owed(),)
