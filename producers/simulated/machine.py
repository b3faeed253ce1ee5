"""One node of a followed cluster: its size, and what it takes and shows without any pod."""

from dataclasses import dataclass

from producers.simulated import noise
from schemas.messages.facts import NodeFacts

SECOND_US = 1_000_000
_LEAST_UPTIME, _MOST_UPTIME = 3600, 30 * 86_400


@dataclass(slots=True)
class Machine:
    """One node.

    Attributes:
        name: Its name.
        uid: Its UID; another one is another machine.
        key: Tells its noise apart.
        cores: CPUs.
        memory: Bytes.
        boot: Its boot id.
        uptime: Seconds since boot at its first second.
        first_us: When its first second begins.
        next_us: When the next second begins that it has to tell of.
        idle_cores: CPU that it takes without pods.
        idle_memory: Bytes likewise.
        load1: Load average.
    """

    name: str
    uid: str
    key: int
    cores: int
    memory: int
    boot: str
    uptime: int
    first_us: int
    next_us: int
    idle_cores: float
    idle_memory: float
    load1: float = 0.0

    @property
    def seq(self) -> int:
        """Second since boot at which its next second begins."""
        return self.uptime + (self.next_us - self.first_us) // SECOND_US

    def boottime_us(self, at_us: int) -> int:
        """Return the time since boot, in microseconds, at a time not before its first second."""
        return self.uptime * SECOND_US + at_us - self.first_us


def of(facts: NodeFacts, cores: int, memory: int, *, seed: int, start_us: int) -> Machine:
    """Return a node that begins to tell, at its own place within the second; it has booted for this simulation.

    Args:
        facts: What is known of it.
        cores: CPUs.
        memory: Bytes.
        seed: Of the simulation.
        start_us: When the simulation began.
    """
    key = noise.key(seed, facts.node)
    phase_us, since_us = key % SECOND_US, max(start_us, facts.at_us)
    first_us = -((phase_us - since_us) // SECOND_US) * SECOND_US + phase_us
    share = 0.8 + 0.4 * (key >> 40) / (1 << 24)
    # Nodes that are simulated again have rebooted; else folds would take their blocks for old ones. The half of
    # the beginning that moves fast is in front, since it distinguishes boots.
    digits = f"{start_us % 2**32:08x}{start_us >> 32:08x}"
    return Machine(
        name=facts.node,
        uid=facts.uid,
        key=key,
        cores=cores,
        memory=memory,
        boot=f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15]}00-{noise.key(0, facts.uid) >> 16:012x}",
        uptime=_LEAST_UPTIME + key // SECOND_US % (_MOST_UPTIME - _LEAST_UPTIME),
        first_us=first_us,
        next_us=first_us,
        idle_cores=share * (0.05 + 0.01 * cores),
        idle_memory=share * min(0.5 * memory, 0.05 * memory + 3e8),
    )
