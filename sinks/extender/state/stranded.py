"""Nodes whose pods would not all fit on other nodes by measured room, so that an autoscaler should not remove them.

Of each class, the places are counted that another pod of it would find. A node's pods need a share of the places that
other nodes have for their class. Pods of several classes share the same room, so their shares add up: above one, some
of the pods would find no place. Pods of classes beyond the `_MOST_CLASSES` with the most pods count as pods without
requests.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sinks.extender.candidate import Array, Pod
from sinks.extender.state import pod_sums
from sinks.extender.state.cluster_state import FRESH, ClusterState

_MOST_CLASSES = 32
_TURN = 1000  # pods counted before requests are answered


@dataclass(slots=True)
class _Class:
    """Pods of one class that would have to move: their number by row, and the requests of one of them."""

    requests: Mapping[str, float]
    rows: Counter[int] = field(default_factory=Counter)


async def find(cluster_state: ClusterState, now_us: int) -> list[str]:
    """Return the stranded nodes; none if no node reports.

    Args:
        cluster_state: Nodes and pods.
        now_us: The time.
    """
    classes = await _count(cluster_state)
    names = cluster_state.nodes()
    rows = cluster_state.rows.rows(names)
    usable = (cluster_state.states(rows, now_us) == FRESH) & (cluster_state.rows["closed"][rows] == 0)
    usable &= cluster_state.rows["barred"][rows] == 0
    if not usable.any():
        return []
    shares = np.zeros(len(names))
    for workload, each in classes.items():
        candidates = cluster_state.candidates(pod(workload, each.requests), names, rows, now_us)
        left = np.where(usable, candidates.sure - candidates.reserved, 0.0)
        places = np.floor(np.clip(np.nan_to_num(left, posinf=np.finfo(np.float64).max), 0.0, None))
        shares += _shares(_on(each.rows, rows), places)
        await asyncio.sleep(0)
    return [name for name, share in zip(names, shares.tolist(), strict=True) if share > 1]


async def _count(cluster_state: ClusterState) -> dict[str, _Class]:
    """Return the pods that would have to move, by class; the empty class stands for the rare ones."""
    counted: dict[str, _Class] = {}
    for number, bound in enumerate(list(cluster_state.pods.bound.values())):
        if bound.moves:
            counted.setdefault(bound.workload, _Class(bound.requests)).rows[bound.row] += 1
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    common = sorted(counted, key=lambda workload: -counted[workload].rows.total())[:_MOST_CLASSES]
    result = {workload: counted[workload] for workload in common}
    rare = _Class({})
    for workload in counted.keys() - result.keys():
        rare.rows.update(counted[workload].rows)
    return result | {"": rare} if rare.rows else result


def _on(counts: Counter[int], rows: NDArray[np.intp]) -> Array:
    """Return (nodes,) the pods on each node."""
    return np.array([counts[row] for row in rows.tolist()], np.float64)


def _shares(there: Array, places: Array) -> Array:
    """Return (nodes,) the share of the places on other nodes that a node's pods need; infinite: there are none."""
    elsewhere = places.sum() - places
    needed = np.divide(there, elsewhere, out=np.full(len(there), np.inf), where=elsewhere > 0)
    return np.where(there > 0, needed, 0.0)


def pod(workload: str, requests: Mapping[str, float]) -> Pod:
    """Return a pod of a class that waits nowhere."""
    return Pod(
        uid="",
        namespace="",
        name="",
        workload=workload,
        scheduler="",
        owner_kind="",
        priority=0,
        labels={},
        annotations={},
        requests=requests,
        limits={},
        nonzero=pod_sums.nonzero(requests),
        containers=(),
    )
