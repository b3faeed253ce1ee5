"""What pods may have of a node in all: the cores that may be demanded, the memory above eviction, the number of pods.

A policy, not a measurement: a pod fits if afterwards every resource holds. CPUs hold while the mean slowdown does
(`slowdown`), memory while what is available stays above the kubelet's eviction threshold. What Kubernetes keeps from
pods (capacity less allocatable) counts as used by the system even while the system needs less.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import slowdown
from processors.estimation.state import Params

Array = NDArray[np.float64]

PLATEAU = 0.97  # of the CPUs in use: none idles but while it is handed from one thread to the next
DOUBT = 0.03  # standard deviation of the share at which CPU work is slowed down as much as the policy allows


class Limits(NamedTuple):
    """What pods may have; each has a leading node axis.

    Attributes:
        amount: (nodes, resources) cores that serving pods may demand, and bytes, with the system's.
        soaked: (nodes,) threads that may always be runnable.
        queueing: (nodes,) by how much more than its demand a serving pod of one core counts.
        reserved: (nodes, resources) cores and bytes that count as the system's, whatever it uses.
        pods: (nodes,) pods.
    """

    amount: Array
    soaked: Array
    queueing: Array
    reserved: Array
    pods: Array


def of(whole: Array, allocatable: Array, sizes: Array, *, params: Params) -> Limits:
    """Return the limits.

    Args:
        whole: (nodes, resources) CPUs and bytes of the machines.
        allocatable: (nodes, resources and pods) what Kubernetes lets pods have; NaN: not known.
        sizes: (nodes, features) what a ratio of 1 is, which the reference variant takes for the limit.
        params: Settings.
    """
    policy = params.settings.policy
    most = np.where(np.isnan(allocatable[:, 2]), params.settings.estimate.max_pods, allocatable[:, 2])
    if not params.variant.policy:
        amount = sizes[:, params.resources]
        return Limits(amount, amount[:, 0], np.zeros(len(amount)), np.zeros_like(amount), most)
    allowed = params.settings.slowdown
    evicted = np.minimum(policy.eviction_bytes, whole[:, 1] / 2)
    amount = np.stack((slowdown.cores(allowed, whole[:, 0]), whole[:, 1] - evicted), axis=1)
    kept = np.stack((whole[:, 0], amount[:, 1]), axis=1) - allocatable[:, :2]
    queueing = slowdown.queueing(allowed, whole[:, 0])
    return Limits(amount, allowed * whole[:, 0], queueing, np.maximum(np.nan_to_num(kept), 0.0), most)
