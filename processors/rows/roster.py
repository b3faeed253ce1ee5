"""Usage of one node's pods over seconds that list the same pods: kept as it comes, and worked on together.

A node lists the same pods for minutes. While it does, and all of them are measured, a second costs two comparisons and
two copies, however many pods there are; who reads the pods one by one pays for the loop then.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

from schemas.messages.telemetry import PodUsageBlock

Array = NDArray[np.float64]


class Roster:
    """The pods that one second of a node lists.

    Attributes:
        running: Indices of those with a running container.
    """

    __slots__ = ("_containers", "_pods", "running")

    def __init__(self, block: PodUsageBlock) -> None:
        self._pods, self._containers = block.pods, block.containers
        self.running = [index for index, containers in enumerate(block.containers) if containers]

    def lists(self, block: PodUsageBlock) -> bool:
        """Tell whether another second lists the same pods, runs the same ones, and has measured all that it lists."""
        return (
            block.pods == self._pods
            and block.containers == self._containers
            and None not in block.cpu_cores
            and None not in block.memory_bytes
        )

    def uids(self) -> list[str]:
        """Return the UIDs of the running pods."""
        return [self._pods[index] for index in self.running]


class Run:
    """Usage of one roster, second by second."""

    __slots__ = ("_cpu", "_memory", "_spans", "_width", "roster")

    def __init__(self, roster: Roster, block: PodUsageBlock) -> None:
        """Begin with a second that the roster lists."""
        self.roster, self._width = roster, len(block.pods)
        self._cpu, self._memory, self._spans = array("d"), array("d"), array("q")
        self.add(block)

    def add(self, block: PodUsageBlock) -> None:
        """Add a second that the roster lists."""
        self._cpu.extend(block.cpu_cores)  # type: ignore[arg-type] # a roster lists measured values only
        self._memory.extend(block.memory_bytes)  # type: ignore[arg-type]
        self._spans.append(block.span_us)

    @property
    def cpu(self) -> Array:
        """Cores, (seconds, running pods)."""
        return np.frombuffer(self._cpu).reshape(len(self._spans), self._width)[:, self.roster.running]

    @property
    def memory(self) -> Array:
        """Bytes, (seconds, running pods)."""
        return np.frombuffer(self._memory).reshape(len(self._spans), self._width)[:, self.roster.running]

    @property
    def spans_us(self) -> NDArray[np.int64]:
        """Length of each second in microseconds, (seconds,)."""
        return np.frombuffer(self._spans, dtype=np.int64)
