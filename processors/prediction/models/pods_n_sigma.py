"""Peak by N sigma, never below the sum over pods of each pod's own mean and deviations.

This is version 2 of Koordinator's proposal. What runs outside of pods is given to it as one more pod.
"""

import numpy as np
from numpy.typing import NDArray

from processors.prediction import moments
from processors.prediction.models import n_sigma
from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.tier import group, pod_sum
from schemas.sections.prediction import Predict


def peak(pods: moments.State, request: Array, row: NDArray[np.intp], rows: int, *, n: float) -> Array:
    """Predict each row's peak as the sum of its pods' peaks, as if all peaked at once.

    Args:
        pods: What was seen of each pod.
        request: (pods, resources), cores and bytes: what a pod counts of which nothing was seen yet; below 0 counts
            as 0. NaN: neither is known, and nor is the row's peak.
        row: (pods,) row of each pod; below 0: of none.
        rows: How many rows there are.
        n: Standard deviations above the mean.

    Returns:
        (rows, resources), cores and bytes; 0 for a row without pods.
    """
    own = n_sigma.peak(pods, n=n)
    return pod_sum.add(np.where(np.isnan(own), np.maximum(request, 0.0), own), row, rows)


class PodsNSigma:
    """The greater of a group's own peak and of the sum of its pods' peaks."""

    name = "pods_n_sigma"

    def peaks(self, evidence: Evidence, settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks."""
        own = n_sigma.MODEL.peaks(evidence, settings)
        pods, rows = evidence.pods, len(own) * group.COUNT
        by_row = peak(pods.moments, pods.request, pods.row, rows, n=settings.sigma)
        return np.fmax(own, group.total(by_row, own[:, group.SYSTEM]))


MODEL: PeakModel = PodsNSigma()
