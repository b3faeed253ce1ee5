"""What a node shows of the CPU that is wanted from it, of its memory and of its pods: the rules of all simulations.

CPU that is wanted beyond the cores is not used; it becomes pressure. Memory becomes pressure when little is left.
"""

import numpy as np
from numpy.typing import NDArray

from schemas import metric

Array = NDArray[np.float64]

SAMPLES = 10
COLUMN = {name: index for index, name in enumerate(metric.NAMES)}


def shown(
    share: Array,
    memory: Array,
    disk: Array,
    network: Array,
    running: Array,
    load1: Array,
    pods: Array,
    waited: Array | None = None,
) -> Array:
    """Return samples (nodes, samples, metrics) in the order of the metrics table.

    Args:
        share: (nodes, samples) CPU that is wanted, over the cores; beyond 1 there is none.
        memory: (nodes, samples) memory in use, over all of it; below 1.
        disk: (nodes, samples) share of the time that the disk is busy.
        network: (nodes, samples) bytes a second.
        running: (nodes, samples) threads that want to run.
        load1: (nodes,) mean of these over a minute.
        pods: (nodes, samples) running pods.
        waited: (nodes, samples) CPU pressure; None: what `pressure` says.
    """
    columns = {
        "cpu_util": np.clip(share, 0.0, 1.0),
        "cpu_pressure": pressure(share) if waited is None else waited,
        "memory_util": memory,
        "memory_used": 0.97 * memory,
        "memory_pressure": np.clip((memory - 0.92) * 6, 0.0, 1.0),
        "memory_stall": np.clip((memory - 0.94) * 6, 0.0, 1.0),
        "io_pressure": 0.5 * disk**2,
        "io_stall": 0.2 * disk**2,
        "disk_util": disk,
        "disk_bytes": disk * 2e8,
        "net_bytes": network,
        "procs_running": np.floor(running),
        "load1": np.broadcast_to(load1[:, None], share.shape),
        "pods": pods,
    }
    samples = np.zeros((*share.shape, len(COLUMN)))
    for name, values in columns.items():
        samples[..., COLUMN[name]] = values
    return samples


def pressure(share: Array) -> Array:
    """Return CPU pressure, 0..1, where so many times the cores are wanted: a little when busy, all of it from twice."""
    return np.asarray(np.clip(0.05 * np.minimum(share, 1.0) ** 8 + np.maximum(share - 1.0, 0.0), 0.0, 1.0))
