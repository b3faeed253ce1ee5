"""RequestedToCapacityRatio of kube-scheduler: packing or spreading, as a curve over the requested share says.

Two things are as they are in kube-scheduler, and not as its documentation has them. Scores of the curve, 0 to 10, are
multiplied by ten before anything is rounded. And a resource with score 0 is left out of the mean with its weight. So
the worked example of the documentation comes to 60 and 69, and not to 5 and 7.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.strategy.node_resources import allocation
from sinks.extender.strategy.node_resources.allocation import Whole

Points = Sequence[tuple[int, int]]


def curve(points: Points, utilization: Whole) -> Whole:
    """Return the score at each utilization, on straight lines between points, rounded toward the line's beginning.

    Args:
        points: Utilization in per cent, rising, and score.
        utilization: Any shape, in whole per cent; beyond the ends the score is that of the end.
    """
    across, scores = np.array(points, dtype=np.int64).T
    right = np.searchsorted(across, utilization, side="left")
    last = len(across) - 1
    to = np.clip(right, 0, last)
    start = np.clip(right - 1, 0, last)
    rise = (scores[to] - scores[start]) * (utilization - across[start])
    # Beyond the ends both points are one, and nothing is added.
    slope = np.sign(rise) * (np.abs(rise) // np.maximum(across[to] - across[start], 1))
    found: Whole = scores[start] + np.where(to == start, 0, slope)
    return found


def points(entries: Sequence[str]) -> Points:
    """Read the points of the setting `shape`, with scores from 0 to 100.

    >>> points(("0=0", "100=10"))
    [(0, 0), (100, 100)]
    """
    return [(int(utilization), int(score) * 10) for utilization, _, score in (each.partition("=") for each in entries)]


class RequestedToCapacityRatio(allocation.Fit):
    """Scores the requested share of each resource, with the pod, by a curve and by weight.

    Attributes:
        resources: Weights by resource.
        shape: The curve, scores from 0 to 100.
    """

    name = "requested_to_capacity_ratio"

    def __init__(self, resources: Mapping[str, float], shape: Points) -> None:
        self.resources = resources
        self.shape = shape

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100; a resource that more is requested of than there is is full."""
        found = allocation.table(pod, nodes, self.resources)
        share = allocation.per_cent(np.minimum(found.requested, found.capacity), found.capacity)
        scores = curve(self.shape, share)
        return np.floor(allocation.mean(found, scores, found.counts & (scores > 0)) + 0.5)
