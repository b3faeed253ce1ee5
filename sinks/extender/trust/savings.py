"""What measured room leaves of a cluster, beside what requests leave of it.

By measured room, what is left of a node is what the whole pods take that surely fit, as a share of what all may take.
By requests, it is the smallest share of CPU, memory and pods that no pod has requested, as kube-scheduler and
autoscalers count. Summed over nodes, it is what the cluster would not need if its pods filled the other nodes. The
difference of the two is what placement by measured room saves. It is negative where requests leave more than there is.

Nodes are divisible here, and pods can move.
"""

from typing import NamedTuple

import numpy as np

from schemas.messages.placement import Spare
from sinks.extender.candidate import Array
from sinks.extender.state.cluster_state import FRESH, ClusterState


class Savings(NamedTuple):
    """Fields of `Trust` beside those of promises."""

    nodes: int
    cores: float
    price: float | None
    measured: Spare
    requested: Spare


def measure(cluster_state: ClusterState, now_us: int) -> Savings:
    """Return what is left of the nodes that report, have facts, are ready, and take pods: without taints that bar them.

    Args:
        cluster_state: Nodes and pods.
        now_us: The time.
    """
    names = cluster_state.nodes()
    rows = cluster_state.rows.rows(names)
    take = cluster_state.rows
    usable = (cluster_state.states(rows, now_us) == FRESH) & (take["facts"][rows] > 0) & (take["closed"][rows] == 0)
    usable &= take["barred"][rows] == 0
    rows = rows[usable & ~np.isnan(take["left"][rows])]
    requested = np.ones(len(rows))
    for resource in ("cpu", "memory"):
        amount = take.column(f"allocatable:{resource}", 0.0)[rows]
        taken = take.column(f"requested:{resource}", 0.0)[rows]
        requested = np.minimum(requested, 1.0 - np.divide(taken, amount, out=np.ones(len(rows)), where=amount > 0))
    most = take.column("allocatable:pods", 0.0)[rows]
    pods = np.divide(take["pods"][rows], most, out=np.zeros(len(rows)), where=most > 0)
    requested = np.minimum(requested, 1.0 - pods)
    cores, price = take.column("allocatable:cpu", 0.0)[rows], take["price"][rows]
    return Savings(
        nodes=len(rows),
        cores=round(float(cores.sum()), 3),
        price=_priced(np.ones(len(rows)), price),
        measured=_spare(np.minimum(take["left"][rows], 1.0), cores, price),
        requested=_spare(np.maximum(requested, 0.0), cores, price),
    )


def _spare(share: Array, cores: Array, price: Array) -> Spare:
    left = float((share * cores).sum())
    return Spare(nodes=round(float(share.sum()), 4), cores=round(left, 4), price=_priced(share, price))


def _priced(share: Array, price: Array) -> float | None:
    return None if np.isnan(price).all() else round(float(np.nansum(share * price)), 6)
