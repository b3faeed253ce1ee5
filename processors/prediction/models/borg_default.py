"""Peak by a fixed rate (Borg-default): pods are never expected to use more than a fixed part of what they ask for.

The peak is the sum of requests over a, a = 1.1 in Koordinator's proposal; Google's simulator multiplies limits by 0.9
instead. It knows no history, so it is never cold, and it cannot see a pod that asks for nothing.
"""

import numpy as np
from numpy.typing import NDArray

from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.tier import group, pod_sum
from schemas.sections.prediction import Predict

OVERCOMMIT = 1.1


def peak(request: Array, row: NDArray[np.intp], rows: int, *, overcommit: float = OVERCOMMIT) -> Array:
    """Predict each row's peak.

    Args:
        request: (pods, resources), cores and bytes; 0 or below: the pod counts nothing. NaN: not known, and nor is
            the row's peak.
        row: (pods,) row of each pod; below 0: of none.
        rows: How many rows there are.
        overcommit: The rate a, above 0; more than 1 promises more than there is.

    Returns:
        (rows, resources), cores and bytes; 0 for a row without pods.

    Raises:
        ValueError: `overcommit` is not above 0.
    """
    if not overcommit > 0:
        raise ValueError(f"overcommit is {overcommit}: it must be above 0")
    high: Array = pod_sum.add(np.maximum(request, 0.0), row, rows) / overcommit
    return high


class BorgDefault:
    """Requests of each class divided by a rate; nothing is predicted of what runs in no pod."""

    name = "borg_default"

    def peaks(self, evidence: Evidence, settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks; NaN where the pods of a node are not known."""
        pods, nodes = evidence.pods, len(evidence.size)
        by_row = peak(pods.request, pods.row, nodes * group.COUNT, overcommit=settings.overcommit)
        peaks = group.total(by_row, np.zeros_like(evidence.size))
        peaks[:, group.SYSTEM] = np.nan
        peaks[~evidence.lists_pods] = np.nan
        return peaks


MODEL: PeakModel = BorgDefault()
