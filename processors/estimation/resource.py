"""From measured metrics to resources: what a node can run out of.

CPU is the blend of utilisation and pressure. For n CPU-bound threads on c cores utilisation is min(1, n/c) and
pressure is clip((n - c)/c, 0, 1), so their sum is n/c on both sides of n = c, and `(util + pressure)/s` reaches 1
exactly at n = s c: s is the mean slowdown that is allowed. s = 2 is the blend of the CARICO dissertation, section
4.2.1. A kernel without pressure information leaves utilisation alone, which is full at n = c.

Threads that a CPU quota holds back count as waiting, too: one of them, allowed 0.3 CPU, makes a pressure of 0.7 on a
machine that is 15 % busy. The agent measures the share of pressure that quotas cause, and only the rest counts. It is
a share, and not a time to be subtracted, because it is measured once a second while pressure moves within it. The
dissertation does not consider quotas, so the reference variant does not either.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_DIRECT: Mapping[str, str] = {
    "memory_pressure": "memory_pressure",
    "io_pressure": "io_pressure",
    "disk": "disk_util",
}
# All metrics that any feature is made of.
METRICS = ("cpu_util", "cpu_pressure", "cpu_throttled", "memory_util", "memory_used", *_DIRECT.values())


def update(
    samples: Array,
    metrics: Mapping[str, int],
    *,
    features: tuple[str, ...],
    slowdown: float,
    memory: str,
    quotas: bool = True,
) -> Array:
    """Compute features from metrics.

    Args:
        samples: (nodes, samples, metrics), NaN = missing.
        metrics: Column of each metric in `samples`.
        features: Which features, in order: cpu, memory, memory_pressure, io_pressure, disk.
        slowdown: Allowed mean slowdown s, 1..2.
        memory: Metric that counts as memory usage: `memory_util`, or `memory_used` in the reference variant.
        quotas: Whether pressure that CPU quotas cause is left out; where its share is missing it counts as 0.

    Returns:
        (nodes, samples, features), ratios 0..1, NaN where the metric is missing.
    """

    def column(name: str) -> Array:
        index = metrics.get(name)
        return np.full(samples.shape[:2], np.nan) if index is None else samples[..., index]

    def cpu() -> Array:
        used, pressure = column("cpu_util"), column("cpu_pressure")
        if quotas:
            pressure = pressure * (1.0 - np.nan_to_num(column("cpu_throttled")))
        return np.where(np.isnan(pressure), used, np.minimum(1.0, (used + pressure) / slowdown))

    compute: dict[str, Callable[[], Array]] = {"cpu": cpu, "memory": lambda: column(memory)}
    return np.stack([compute[name]() if name in compute else column(_DIRECT[name]) for name in features], axis=-1)
