"""The machines of a simulated cluster, and the workloads that run on them: drawn once, from a seed.

Sizes are those that clouds rent out. A workload class has a cost per pod in each resource, spread over more than a
decade, as real pods are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CLASSES = (
    "shop/web",
    "shop/api",
    "shop/cart",
    "data/ingest",
    "data/query",
    "batch/report",
    "batch/encode",
    "ml/serve",
)
_CORES = (4, 8, 16, 32, 64)
_GIB_PER_CORE = (2, 4, 8)
_CLASSES_PER_NODE = 4
_OLDEST_SECONDS = 30 * 86_400


class Fleet(NamedTuple):
    """What does not change; (nodes,) unless stated.

    Attributes:
        name: Names of the nodes.
        uptime: Seconds since boot at the start.
        phase_us: When in a second its own second begins.
        cores: CPUs.
        memory: Bytes.
        idle_cores: CPU that the node takes without pods, in cores.
        idle_memory: The same in bytes.
        target: Share of the cores that its pods take in the beginning.
        classes: (nodes, 4) workload classes that run here.
    """

    name: list[str]
    uptime: NDArray[np.int64]
    phase_us: NDArray[np.int64]
    cores: NDArray[np.int64]
    memory: NDArray[np.int64]
    idle_cores: Array
    idle_memory: Array
    target: Array
    classes: NDArray[np.int64]


class Workloads(NamedTuple):
    """What a pod of each class takes; (classes,).

    Attributes:
        cores: Mean CPU.
        memory: Mean working set in bytes.
        disk: Share of the time of a disk.
        network: Bytes a second.
        swing: Amplitude of the daily wave, as a share.
        peak: When in the wave it peaks, 0..1.
    """

    cores: Array
    memory: Array
    disk: Array
    network: Array
    swing: Array
    peak: Array


def draw(nodes: int, random: np.random.Generator) -> tuple[Fleet, Workloads]:
    """Draw machines and workloads."""
    cores = random.choice(_CORES, nodes).astype(np.int64)
    memory = cores * random.choice(_GIB_PER_CORE, nodes) << 30
    width = max(5, len(str(nodes - 1)))
    fleet = Fleet(
        name=[f"sim-{index:0{width}d}" for index in range(nodes)],
        uptime=random.integers(3600, _OLDEST_SECONDS, nodes),
        phase_us=random.integers(0, 1_000_000, nodes),
        cores=cores,
        memory=memory,
        idle_cores=random.uniform(0.05, 0.2, nodes) + random.uniform(0.005, 0.02, nodes) * cores,
        idle_memory=random.uniform(0.04, 0.1, nodes) * memory + 3e8,
        target=random.uniform(0.1, 0.75, nodes),
        classes=random.permuted(np.tile(np.arange(len(CLASSES)), (nodes, 1)), axis=1)[:, :_CLASSES_PER_NODE],
    )
    count = len(CLASSES)
    workloads = Workloads(
        cores=_between(random, 0.05, 1.0, count),
        memory=_between(random, 64 << 20, 2 << 30, count),
        disk=_between(random, 0.0005, 0.01, count),
        network=_between(random, 1e4, 5e6, count),
        swing=random.uniform(0.0, 0.5, count),
        peak=random.uniform(0.0, 1.0, count),
    )
    return fleet, workloads


def _between(random: np.random.Generator, low: float, high: float, count: int) -> Array:
    """Draw from a log-uniform distribution."""
    return np.asarray(np.exp(random.uniform(np.log(low), np.log(high), count)))
