"""What was last reported of the classes of each node, and what is worth a report at once.

A class whose cost was assumed and is measured now is: the extender admits one pod of an unknown kind and waits for
that, though the room may be as large as it was assumed to be.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.rows import table
from processors.workload.capacity.class_capacity import Room
from processors.workload.capacity.nodes import Cluster
from processors.workload.classes import EMPTY
from processors.workload.cluster import voting
from processors.workload.pod_class import UNNAMED
from schemas.messages.estimate import MAXIMUM_CLASSES, MOSTLY_ASSUMED
from schemas.sections.estimation import Estimate

Array = NDArray[np.float64]

CHANGE_SHARE = 0.05  # of what was reported: less is within its noise, and waits for the next report

_LEAST_WEIGHT = 0.005  # of a class in the mix that is worth a word


class Reported(NamedTuple):
    """By node and class: the node's slots first, then the cluster's classes.

    Attributes:
        room: (nodes, classes) pods that fit; NaN: nothing was reported.
        measured: (nodes, classes) True: most of the cost was measured.
    """

    room: Array
    measured: NDArray[np.bool_]


def init(nodes: int, slots: int) -> Reported:
    """Return the state of nodes of which nothing was reported."""
    shape = (nodes, slots + MAXIMUM_CLASSES)
    return Reported(np.full(shape, np.nan), np.zeros(shape, np.bool_))


def clear(state: Reported, row: int, slot: int) -> None:
    """Forget what was reported of a slot whose class changes, in place."""
    state.room[row, slot], state.measured[row, slot] = np.nan, False


def adopt(state: Reported, slots: int, before: Mapping[int, int], labels: list[int]) -> Reported:
    """Return the state with the cluster's classes in another order; `before` are their columns by label so far."""
    adopted = init(len(state.room), slots)
    for new, old in zip(adopted, state, strict=True):
        new[:, :slots] = old[:, :slots]
        for column, label in enumerate(labels):
            if label in before:
                new[:, slots + column] = old[:, slots + before[label]]
    return adopted


def moved(state: Reported, rows: NDArray[np.intp], room: Room, slots: int, params: Estimate) -> NDArray[np.bool_]:
    """Return of which nodes (nodes,) a class has changed enough to be reported at once.

    A class that is new on the node has; one that is new in the cluster waits for the next report of each node.

    Args:
        state: What was reported.
        rows: The nodes.
        room: What there is to report of them.
        slots: Classes of the node's own.
        params: The change of room that is worth a report.
    """
    width = room.label.shape[1]
    reported, measured = state.room[rows, :width], state.measured[rows, :width]
    least = np.maximum(params.change_pods, CHANGE_SHARE * reported)
    changed = np.abs(room.available - reported) >= least
    changed |= (room.assumed <= MOSTLY_ASSUMED) & ~measured & ~np.isnan(reported)
    changed[:, :slots] |= np.isnan(reported[:, :slots])
    return np.asarray(np.any((room.label >= 0) & changed, axis=1))


def tell(state: Reported, rows: NDArray[np.intp], room: Room, due: NDArray[np.bool_]) -> None:
    """Remember what is reported of those nodes (nodes,) that are due, in place."""
    label, width = room.label[due], room.label.shape[1]
    state.room[rows[due], :width] = np.where(label >= 0, room.available[due], np.nan)
    state.measured[rows[due], :width] = (label >= 0) & (room.assumed[due] <= MOSTLY_ASSUMED)


def listed(label: NDArray[np.int64], pods: Array, cluster: Cluster, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return names and columns of a node's classes: those with most pods first, here, then in the cluster.

    Args:
        label: (classes,) numbers of the classes.
        pods: (classes,) running pods.
        cluster: What the cluster knows of classes.
        names: Name of each label.
    """
    elsewhere, running = dict(zip(cluster.label.tolist(), cluster.pods.tolist(), strict=True)), pods.tolist()
    named = [
        (-running[column], -elsewhere.get(number, 0.0), names[number], column)
        for column, number in enumerate(label.tolist())
        if number != EMPTY and names[number] != UNNAMED
    ]
    return [(name, column) for _, _, name, column in sorted(named)[:MAXIMUM_CLASSES]]


def named(weights: Array, label: NDArray[np.int64], names: Sequence[str]) -> list[dict[str, float]]:
    """Return the largest weights (nodes, classes) of each node's mix by name, as far as they are worth a word."""
    columns = np.argsort(-weights, axis=1, kind="stable")[:, :MAXIMUM_CLASSES]
    largest, labels = np.take_along_axis(weights, columns, axis=1), np.take_along_axis(label, columns, axis=1)
    return [
        {names[number]: weight for number, weight in zip(*row, strict=True) if weight >= _LEAST_WEIGHT}
        for row in zip(labels.tolist(), largest.tolist(), strict=True)
    ]


def claims(oversized: Sequence[bool], far: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    """Return what nodes say that their facts or other nodes contradict, by index of the node.

    Args:
        oversized: Whether each claims to be larger than it can be.
        far: Index of a node, and a class whose cost it says to be far from what others say.
    """
    listed = {index: [voting.SIZE] for index, too_large in enumerate(oversized) if too_large}
    for index, name in far:
        if name != UNNAMED:
            listed.setdefault(index, []).append(f"{voting.CLASS} {name}")
    return listed


def dump(state: Reported) -> dict[str, NDArray[Any]]:
    """Return the arrays by the names that checkpoints have for them."""
    return {"told": state.room, "known": state.measured}


def load(template: Reported, arrays: Mapping[str, NDArray[Any]]) -> Reported:
    """Take over what `dump` returned.

    Earlier versions did not store what was known: it is then reported once more.

    Raises:
        ValueError: An array is missing or of another shape.
    """
    if (room := arrays.get("told")) is None:
        raise ValueError("state has no array told")
    return table.restore(template, {"room": room, "measured": arrays.get("known", np.zeros(room.shape, np.bool_))})
