"""What pods of a placement run really take, and what share of a node that is by the policy of slowdown 2.

The judge's own figures: they come from the policy's text and the simulation, not from what spazio says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

GIB = 1 << 30
SLOWDOWN = 2
_SERVING = {2: 0.707, 4: 0.835}  # share of so many CPUs that serving pods may demand
_MEMORY = 0.93  # a simulated node without pods holds 6 % or more


class Size(NamedTuple):
    """CPUs and bytes of a node."""

    cpus: int
    memory: int


@dataclass(frozen=True, slots=True)
class Family:
    """Pods of one workload class that all take the same.

    Attributes:
        name: The class.
        cores: Cores that its requests demand.
        threads: Threads that never sleep.
        memory: Bytes.
        requests: What it requests, by resource.
    """

    name: str
    cores: float
    threads: int
    memory: int
    requests: Mapping[str, str] = field(default_factory=dict)

    def annotations(self) -> dict[str, str]:
        """Return what makes the simulation give a pod such telemetry."""
        usage = {"spazio.usage-cpu": str(self.cores), "spazio.usage-memory": str(self.memory)}
        return usage | ({"spazio.usage-threads": str(self.threads)} if self.threads else {})

    def takes(self, size: Size) -> tuple[float, float]:
        """Return the shares of CPU and of memory that one pod takes of what the policy lets all pods take."""
        serving, soaking = self.cores / (_SERVING[size.cpus] * size.cpus), self.threads / (SLOWDOWN * size.cpus)
        return serving + soaking, self.memory / (_MEMORY * size.memory)


PLAIN = Family("lab", cores=0.3, threads=0, memory=GIB // 2)
SMALL = Family("small", cores=0.1, threads=0, memory=GIB // 8)
SOAKING = Family("soaking", cores=0.0, threads=1, memory=GIB // 16)
HOLDING = Family("holding", cores=0.01, threads=0, memory=2 * GIB)
