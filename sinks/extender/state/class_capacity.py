"""The number of pods of each workload class that fit on each node, as nodes report it, or else by requests.

A node reports a few classes, but a cluster has thousands. The reports are therefore stored by node, and columns over
all nodes exist only for the classes that were queried last.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.messages.estimate import MOSTLY_ASSUMED, ClassRoom
from sinks.extender.candidate import Array, Mask, Pod
from sinks.extender.state.rows import Rows

_COLUMNS = 32
_IDLE = 0.2  # of the saturation
_SETTLED = 0.8  # of a cost: where so much is evidence, the bound counts in full
_CONVERSION = 100.0  # at most so many pods of one class for one of another
# One pod in ten takes more than this multiple of its stated requests, and of the stand-ins.
_TAIL, _WIDE_TAIL = 1.64, 3.6
_LEAST = 1e-9


class ClassCapacity(NamedTuple):
    """A node's report of a class: pods that fit, the lower bound, the assumed share of their cost, and running pods."""

    room: float
    sure: float
    assumed: float
    pods: float


_NOTHING = ClassCapacity(np.nan, np.nan, np.nan, np.nan)


class ClassCapacities:
    """Reported room by row and class."""

    def __init__(self, rows: Rows) -> None:
        """Create an empty table."""
        self._rows = rows
        self._by_row: dict[int, Mapping[str, ClassCapacity]] = {}
        self._reporting: Counter[str] = Counter()
        self._columns: OrderedDict[str, Array] = OrderedDict()

    def has(self, row: int, workload: str) -> bool:
        """Tell whether a node reports a class."""
        return workload in self._by_row.get(row, ())

    def put(self, row: int, reported: Mapping[str, ClassRoom], *, mean: bool) -> None:
        """Store a node's report of all its classes.

        Args:
            row: The node's.
            reported: What it says, by class.
            mean: Its mean stands for the lower bound.
        """
        classes = {
            name: ClassCapacity(each.available, each.available if mean else each.lower, each.prior or 0.0, each.pods)
            for name, each in reported.items()
        }
        before = self._by_row.get(row, {})
        if before.keys() != classes.keys():
            self._reporting.update(classes.keys() - before.keys())
            for gone in before.keys() - classes.keys():
                self._reporting[gone] -= 1
                if not self._reporting[gone]:
                    del self._reporting[gone]
        if classes:
            self._by_row[row] = classes
        else:
            self._by_row.pop(row, None)
        for workload, column in self._columns.items():
            if row < len(column):
                column[row] = classes.get(workload, _NOTHING)

    def of(self, workload: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes,) pods of a class that fit; if a node does not report the class, of its mean pod."""
        mean = self._rows["room"][rows]
        if workload not in self._reporting:
            return mean
        own = self._column(workload)[rows, 0]
        return np.where(np.isnan(own), mean, own)

    def reported(self, workload: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes, 4) the reports of a class, as `ClassCapacity`; NaN where a node has none."""
        if workload not in self._reporting:
            return np.full((len(rows), len(_NOTHING)), np.nan)
        return self._column(workload)[rows]

    def is_measured(self, workload: str) -> bool:
        """Tell whether a report that names a class has measured what it takes; True also if no report names it."""
        if workload not in self._reporting:
            return True
        return bool((self._column(workload)[:, 2] <= MOSTLY_ASSUMED).any())

    def worth(self, room: Array, kind: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes,) the number of pods of a class that take as much as one pod of another kind.

        Args:
            room: (nodes,) how many pods of the class fit, by reports or by requests.
            kind: The other kind.
            rows: Rows of the nodes.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = room / self.of(kind, rows)
        return np.clip(np.where(np.isnan(ratio), 1.0, ratio), 1 / _CONVERSION, _CONVERSION)

    def _column(self, workload: str) -> Array:
        column = self._columns.pop(workload, None)
        size = len(self._rows["room"])
        if column is None or len(column) != size:
            column = np.full((size, len(_NOTHING)), np.nan)
            for row, classes in self._by_row.items():
                column[row] = classes.get(workload, _NOTHING)
        self._columns[workload] = column
        if len(self._columns) > _COLUMNS:
            self._columns.popitem(last=False)
        return column


def by_requests(columns: Rows, pod: Pod, rows: NDArray[np.intp]) -> list[Array]:
    """Return (nodes,) room, lower bound and assumed share of the cost of a kind that the nodes do not report.

    It is what the pod's requests leave of the node's free resources, or the room of a mean pod where these are unknown,
    and no more than the places that the node's pod limit leaves.

    Args:
        columns: What the nodes report.
        pod: A pod of the kind.
        rows: The nodes' rows.
    """
    # A pod without requests counts with the stand-ins, and may take several times as much.
    stated = bool(pod.requests.get("cpu") and pod.requests.get("memory"))
    room = np.full(len(rows), np.inf)
    for resource, amount in pod.nonzero.items():
        free = columns[f"free:{resource}"][rows]
        room = np.minimum(room, np.where(np.isnan(free), np.inf, free / max(amount, _LEAST)))
    # Not in whole pods: a bound of 1 would leave nothing for the pod while any other is on its way, however small.
    places, sure = _places(columns, rows), room / (_TAIL if stated else _WIDE_TAIL)
    own = {"room": np.fmin(room, places), "sure": np.fmin(sure, places), "assumed": np.ones(len(rows))}
    return [np.where(np.isfinite(room), values, columns[name][rows]) for name, values in own.items()]


def _places(columns: Rows, rows: NDArray[np.intp]) -> Array:
    """Return (nodes,) pods that the kubelet still takes beside those that the node reports; NaN: not known."""
    limit = columns.column("allocatable:pods", 0.0)[rows]
    return np.where(limit > 0, np.maximum(limit - columns["running"][rows], 0.0), np.nan)


def evident(sure: Array, assumed: Array) -> Array:
    """Return lower bounds as far as the cost of a kind is evidence, though never less than a pod that fits.

    Of many nodes with a few seconds of a kind the scheduler takes the one that most underestimates it, so a bound that
    holds on nine nodes of ten is broken there. Pods that come in steps bring the evidence for the next ones.

    Args:
        sure: (nodes,) lower bound of the room for the kind.
        assumed: (nodes,) share of its cost that is not evidence, 0..1.
    """
    share = np.minimum((1.0 - assumed) / _SETTLED, 1.0)
    return np.asarray(np.maximum(sure * share, np.minimum(sure, 1.0)))


def admitting_first(room: Array, sure: Array, unknown: Mask, pods: Array, saturation: Array) -> Array:
    """Return lower bounds that admit the first pod of a kind where its cost is unknown, or where a node is idle.

    A bound on a cost with little evidence may stay below one on an empty node. No pod of the kind would ever run there,
    and the evidence would never come.

    Args:
        room: (nodes,) expected room for the kind.
        sure: (nodes,) its lower bound.
        unknown: (nodes,) whether the cost is an assumption.
        pods: (nodes,) running pods of the kind; NaN: none known.
        saturation: (nodes,) CPUs in use and wanted, as a share of what the allowed slowdown admits.
    """
    first = (unknown | (saturation < _IDLE)) & ~(pods > 0) & (room >= 1)
    return np.where(first, np.maximum(sure, 1.0), sure)
