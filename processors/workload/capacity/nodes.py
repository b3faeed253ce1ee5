"""What the capacity for a class rests on beside what its pods take: the nodes, and classes of the whole cluster."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level, slowdown
from processors.workload.usage import CPU

Array = NDArray[np.float64]


class Nodes(NamedTuple):
    """What is known of some nodes beside their classes; resources are cpu and memory.

    Attributes:
        level: Used share of what pods may have, by what the node as a whole uses.
        amount: (nodes, resources) cores that serving pods may demand, and bytes, with the system's.
        soaked: (nodes,) threads that may always be runnable.
        queueing: (nodes,) by how much more than its demand a serving pod of one core counts.
        reserved: (nodes, resources) cores and bytes that count as the system's.
        most: (nodes,) pods that the node may run.
        reference: (nodes, resources) cores and bytes that a pod takes of which nothing is known.
        newcomer: (nodes, resources) the same of a class that is new to the cluster: no less than what pods took from
            which the node's own regression has learned.
        averaged: That is the mean pod of the cluster, and not the reference pod.
        running: (nodes,) cores in use.
        waiting: (nodes,) cores that are wanted beyond those.
        cores: (nodes,) CPUs.
        full: (nodes,) no CPU is idle.
        pods: (nodes,) running pods.
        churn: (nodes,) containers come or go.
        at_us: (nodes,) time of the newest block of samples.
    """

    level: level.State
    amount: Array
    soaked: Array
    queueing: Array
    reserved: Array
    most: Array
    reference: Array
    newcomer: Array
    averaged: bool
    running: Array
    waiting: Array
    cores: Array
    full: NDArray[np.bool_]
    pods: Array
    churn: NDArray[np.bool_]
    at_us: NDArray[np.int64]

    @property
    def unknown(self) -> Array:
        """Share (nodes, resources) of what pods may have that one of an unknown class takes, as a service."""
        share = self.reference / self.amount
        share[:, CPU] *= slowdown.weight(self.reference[:, CPU], self.queueing)
        return share


class Cluster(NamedTuple):
    """What the cluster knows of classes (classes,): label, pods, shares of soaking ones and of assumed cost; cost.

    `fair` (classes,) is how many pods a node has evidence of, in the mean; NaN: too few nodes have any.
    """

    label: NDArray[np.int64]
    pods: Array
    soaking: Array
    assumed: Array
    cost: Array
    fair: Array
