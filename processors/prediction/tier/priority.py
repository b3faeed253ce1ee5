"""Which of Koordinator's priority classes a pod belongs to: how important it is.

The label decides; without it the number of the pod's Kubernetes priority, which has one band for each class; without
both its quality of service, Koordinator's own if it is labelled, else the one of Kubernetes. A value that says nothing
(an unknown label, a number between the bands) leaves the decision to the next rule, and a pod of which nothing says
anything is of no class and counts as production: only a mark makes a pod less important.
"""

import enum
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

LABEL = "koordinator.sh/priority-class"
QOS_LABEL = "koordinator.sh/qosClass"


class Priority(enum.IntEnum):
    """A class, as arrays hold it."""

    NONE = 0
    PROD = 1
    MID = 2
    BATCH = 3
    FREE = 4


_NAMES: Mapping[str, Priority] = {
    "koord-prod": Priority.PROD,
    "koord-mid": Priority.MID,
    "koord-batch": Priority.BATCH,
    "koord-free": Priority.FREE,
}
_BANDS: Mapping[int, Priority] = {9: Priority.PROD, 7: Priority.MID, 5: Priority.BATCH, 3: Priority.FREE}
_BAND = 1000
_QOS: Mapping[str, Priority] = {
    "SYSTEM": Priority.PROD,
    "LSE": Priority.PROD,
    "LSR": Priority.PROD,
    "LS": Priority.PROD,
    "BE": Priority.BATCH,
}
_KUBERNETES_QOS: Mapping[str, Priority] = {
    "Guaranteed": Priority.PROD,
    "Burstable": Priority.PROD,
    "BestEffort": Priority.BATCH,
}


def of(labels: Mapping[str, str], priority: int | None, qos: str | None) -> Priority:
    """Return a pod's class.

    Args:
        labels: The pod's labels.
        priority: `spec.priority`; 9000..9999 is PROD, 7000..7999 MID, 5000..5999 BATCH, 3000..3999 FREE.
        qos: `status.qosClass`.

    >>> of({}, 5500, "Guaranteed")
    <Priority.BATCH: 3>
    """
    rules = (
        _NAMES.get(labels.get(LABEL, "")),
        None if priority is None else _BANDS.get(priority // _BAND),
        _QOS.get(labels.get(QOS_LABEL, "")),
        _KUBERNETES_QOS.get(qos or ""),
    )
    return next((choice for choice in rules if choice is not None), Priority.NONE)


def is_prod(classes: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Tell which pods (pods,) count as production: PROD, NONE, and any number that is no class."""
    counts: NDArray[np.bool_] = (classes != Priority.MID) & (classes != Priority.BATCH) & (classes != Priority.FREE)
    return counts
