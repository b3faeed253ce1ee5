"""How many pods a workload should have for what is forecast of it."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MOST = 1_000_000
_ROUNDING = 1e-9


def pods(usage: Array, requested: Array, running: Array, *, target: float) -> NDArray[np.int64]:
    """Return ceil(sum of the pods' utilisation / target), utilisation being the share of its request that a pod uses.

    A pod's request is the mean of those that run. Where nothing is asked for, or no pod runs, there is no utilisation,
    and what runs is what is desired.

    Args:
        usage: (workloads,) cores or bytes that all pods together will use.
        requested: (workloads,) cores or bytes that those that run now ask for together.
        running: (workloads,) pods.
        target: Utilisation that is aimed at, above 0.

    Returns:
        (workloads,) at least 1 and at most a million where there is utilisation.

    >>> pods(np.array([9.0, 8.0, 5.0]), np.array([10.0, 10.0, 0.0]), np.array([10.0, 10.0, 3.0]), target=0.8)
    array([12, 10,  3])
    """
    counts = (requested > 0) & (running > 0) & np.isfinite(usage)
    share = np.divide(usage, requested, out=np.zeros_like(usage), where=counts) * running
    wanted = np.clip(np.ceil(share / target - _ROUNDING), 1, _MOST)
    return np.where(counts, wanted, running).astype(np.int64)
