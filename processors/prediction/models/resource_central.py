"""Peak by the sum of pods' percentiles (Resource Central): each pod at its own high usage, all at once.

A pod's peak is a percentile of its past usage, taken from a histogram or from samples; either way it comes here as a
plain array. Pods seldom peak together, so the sum lies above the node's real peak, the more the more pods there are.
Named for the predictor of Azure (Cortez et al., SOSP 2017); the percentile is Google's reading of it (Bashir et al.,
EuroSys 2021).
"""

import numpy as np
from numpy.typing import NDArray

from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.tier import group, pod_sum
from schemas.sections.prediction import Predict


def peak(percentile: Array, request: Array, row: NDArray[np.intp], rows: int) -> Array:
    """Predict each row's peak.

    Args:
        percentile: (pods, resources), cores and bytes; NaN: nothing is known of the pod, it counts its request.
            Below 0 counts as 0; above the request, or above what the node has, counts in full.
        request: (pods, resources), cores and bytes; below 0 counts as 0. NaN beside a NaN percentile: the row's peak
            is not known.
        row: (pods,) row of each pod; below 0: of none.
        rows: How many rows there are.

    Returns:
        (rows, resources), cores and bytes; 0 for a row without pods.
    """
    high = np.where(np.isnan(percentile), request, percentile)
    return pod_sum.add(np.maximum(high, 0.0), row, rows)


class ResourceCentral:
    """Percentiles of each class's pods together, and of what runs in no pod."""

    name = "resource_central"

    def peaks(self, evidence: Evidence, _settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks."""
        pods, rows = evidence.pods, len(evidence.size) * group.COUNT
        by_row = peak(pods.percentile, pods.request, pods.row, rows)
        return group.total(by_row, evidence.percentile[:, group.SYSTEM])


MODEL: PeakModel = ResourceCentral()
