"""What a node is checked for: a window that has ended, if one has, and its pods; one row of arrays for each."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from processors.prediction import moments, peaks, statistic, window
from processors.prediction.pod import Pod, Row, departed
from processors.prediction.tier import group
from processors.prediction.window import Series, Window
from schemas.sections.prediction import Predict

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Times = NDArray[np.int64]


class Closed(NamedTuple):
    """A window that has ended.

    Attributes:
        node: Usage of the node.
        lists_pods: The node's pods were reported in it.
        series: Usage of each pod.
        pods: The pods, in the same order.
    """

    node: Series
    lists_pods: bool
    series: list[Series]
    pods: list[Row]

    @classmethod
    def of(cls, ended: Window, pods: Mapping[str, Pod]) -> Self:
        """Return a window that has ended; `pods` are the node's by UID, without those that are gone."""
        rows = [pods[uid].row if uid in pods else departed(ended.priorities[uid]) for uid in ended.pods]
        return cls(ended.node, bool(ended.reports), list(ended.pods.values()), rows)


class Check(NamedTuple):
    """One check of a node: when, the window that has ended, if one has, and the node's pods."""

    at_us: int
    closed: Closed | None
    pods: list[Row]


def due(
    at_us: int,
    last_window: Window | None,
    last_check: int | None,
    pods_now: Callable[[], Mapping[str, Pod]],
    settings: Predict,
) -> Check | None:
    """Return what a node is checked for: a window that has ended or, every few seconds, a change; else None.

    Args:
        at_us: Event time.
        last_window: The node's newest window; None: it has none.
        last_check: When it was last checked, in units of `check_seconds`; None: never.
        pods_now: Returns the node's pods by UID.
        settings: Lengths of windows, and pauses between checks.
    """
    second = at_us // 1_000_000
    if last_window is None or not settings.enabled:
        return None
    has_ended = last_window.number != second // settings.update_seconds
    is_due = last_check not in (None, second // settings.check_seconds)
    if not has_ended and not is_due:
        return None
    pods = pods_now()
    closed = Closed.of(last_window, pods) if has_ended else None
    return Check(at_us, closed, [pod.row for pod in pods.values() if pod.there])


class Usage(NamedTuple):
    """Usage of windows that have ended.

    Attributes:
        by_group: (windows, groups, resources) 90th percentiles; NaN: not known.
        mean: (windows, parts, resources) means of the node and of what runs in no pod.
        by_pod: (pods, resources) 90th percentiles.
        window: (pods,) index of each pod's window.
        slot: (pods,) rows of their statistics; below 0: there are none.
    """

    by_group: Array
    mean: Array
    by_pod: Array
    window: Rows
    slot: Rows


def usage(closed: Sequence[Closed]) -> Usage:
    """Return what some windows stand for."""
    node = np.repeat(np.arange(len(closed)), [len(ended.series) for ended in closed])
    series = [of_pod for ended in closed for of_pod in ended.series]
    pods = [row for ended in closed for row in ended.pods]
    row = group.row(node, np.array([pod.priority for pod in pods], dtype=np.intp))
    lists_pods = np.array([ended.lists_pods for ended in closed])
    by_pod = window.ninetieth(series)
    mean = group.usage(window.mean(ended.node for ended in closed), window.mean(series), row, lists_pods)
    return Usage(
        by_group=group.usage(window.ninetieth(ended.node for ended in closed), by_pod, row, lists_pods),
        mean=mean[:, [group.NODE, group.SYSTEM]],
        by_pod=by_pod,
        window=node,
        slot=np.array([pod.slot for pod in pods], dtype=np.intp),
    )


def slots(checks: Sequence[Check]) -> Rows:
    """Return the rows (pods,) of the statistics of all pods, node by node."""
    return np.array([row.slot for check in checks for row in check.pods], dtype=np.intp)


def pods(checks: Sequence[Check], at_us: Times, statistics: statistic.Past, settings: Predict) -> peaks.Pods:
    """Return the pods of some nodes.

    Args:
        checks: (nodes,).
        at_us: (nodes,) when the nodes are checked.
        statistics: (pods,) of the pods, in the order of `slots`.
        settings: How old a pod must be, and how long it must have been seen, to be predicted.
    """
    rows = [row for check in checks for row in check.pods]
    node = np.repeat(np.arange(len(checks)), [len(check.pods) for check in checks])
    created = np.array([row.created_us for row in rows], dtype=np.int64)
    young = (at_us[node] - created) / 1e6 <= settings.cold_start_seconds
    # What a pod has inherited counts as its own past; an old one must have been seen for a while, too.
    wanted = np.where(young, settings.cold_start_seconds, min(settings.cold_start_seconds, settings.evidence_seconds))
    return peaks.Pods(
        node=node,
        priority=np.array([row.priority for row in rows], dtype=np.int8),
        request=np.array([row.request for row in rows], dtype=np.float64).reshape(-1, 2),
        usage=np.array([row.usage for row in rows], dtype=np.float64).reshape(-1, 2),
        exclusive=np.array([row.exclusive for row in rows], dtype=np.bool_),
        ending=np.array([row.ending for row in rows], dtype=np.bool_),
        cold=moments.span_seconds(statistics.moments) < wanted,
        statistics=statistics,
    )
