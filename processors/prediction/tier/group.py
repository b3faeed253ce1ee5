"""Groups of a node: the whole node, the priority classes of its pods, and what runs in no pod.

Arrays by group are (nodes, groups, ...) in the order of `GROUPS`. Arrays by row are (nodes x groups, ...).
"""

import numpy as np
from numpy.typing import NDArray

from processors.prediction.tier import pod_sum
from processors.rows import known
from schemas.messages.prediction import GROUPS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

COUNT = len(GROUPS)
NODE, NONE, SYSTEM = GROUPS.index("node"), GROUPS.index("none"), GROUPS.index("system")
PROD = GROUPS.index("prod")
# Groups of the numbers that `priority.Priority` has for classes.
OF_PRIORITY = np.array([NONE, PROD, GROUPS.index("mid"), GROUPS.index("batch"), GROUPS.index("free")])


def rows(nodes: Rows) -> Rows:
    """Return the rows of all groups of some nodes (nodes,), node by node."""
    every: Rows = (nodes[:, None] * COUNT + np.arange(COUNT)).ravel()
    return every


def row(node: Rows, priority: NDArray[np.integer]) -> Rows:
    """Return the row (pods,) that each pod belongs to, by its node and its priority class."""
    return np.asarray(node * COUNT + OF_PRIORITY[priority], dtype=np.intp)


def usage(whole: Array, by_pod: Array, pod_row: Rows, lists_pods: Mask) -> Array:
    """Return usage by group (nodes, groups, resources).

    A class without pods uses nothing. Where the pods of a node are not known, only the whole node is known.

    Args:
        whole: (nodes, resources) usage of the node.
        by_pod: (pods, resources); NaN counts as 0.
        pod_row: (pods,) as of `row`.
        lists_pods: (nodes,) True: the node's pods are known.
    """
    by_group = pod_sum.add(known.or_zero(by_pod), pod_row, len(whole) * COUNT).reshape(len(whole), COUNT, 2)
    by_group[:, SYSTEM] = np.maximum(whole - by_group.sum(axis=1), 0.0)
    by_group[~lists_pods] = np.nan
    by_group[:, NODE] = whole
    return by_group


def total(by_row: Array, system: Array) -> Array:
    """Return peaks by group (nodes, groups, resources), the node's being the sum of its other groups.

    Where the pods of a node are not known, their sum is not the node: give NaN as its `system`.

    Args:
        by_row: (nodes x groups, resources) of the priority classes; other groups are overwritten.
        system: (nodes, resources) of what runs in no pod.
    """
    peaks = by_row.reshape(len(system), COUNT, system.shape[1])
    peaks[:, SYSTEM] = system
    peaks[:, NODE] = peaks[:, PROD : SYSTEM + 1].sum(axis=1)
    return peaks
