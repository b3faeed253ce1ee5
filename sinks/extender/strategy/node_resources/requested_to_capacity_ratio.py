"""RequestedToCapacityRatio of kube-scheduler: a curve over the requested share decides between packing and spreading.

Two details follow the code of kube-scheduler, not its documentation. The curve's scores, 0 to 10, are multiplied by ten
before rounding. A resource with score 0 is left out of the mean together with its weight. The documentation's worked
example therefore scores 60 and 69, not 5 and 7.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.strategy.node_resources import allocation
from sinks.extender.strategy.node_resources.allocation import Whole

Points = Sequence[tuple[int, int]]


def curve(points: Points, utilization: Whole) -> Whole:
    """Interpolate the score at each utilization linearly, rounded toward the start of each segment.

    Args:
        points: Utilization in per cent, ascending, and score.
        utilization: Any shape, in whole per cent; beyond the ends the score of the end point applies.
    """
    across, scores = np.array(points, dtype=np.int64).T
    right = np.searchsorted(across, utilization, side="left")
    last = len(across) - 1
    to = np.clip(right, 0, last)
    start = np.clip(right - 1, 0, last)
    rise = (scores[to] - scores[start]) * (utilization - across[start])
    # Beyond the ends, both points of the segment are equal and the slope adds nothing.
    slope = np.sign(rise) * (np.abs(rise) // np.maximum(across[to] - across[start], 1))
    score: Whole = scores[start] + np.where(to == start, 0, slope)
    return score


def points(entries: Sequence[str]) -> Points:
    """Parse the points of the setting `shape`, with scores scaled to 0..100.

    >>> points(("0=0", "100=10"))
    [(0, 0), (100, 100)]
    """
    return [(int(utilization), int(score) * 10) for utilization, _, score in (each.partition("=") for each in entries)]


class RequestedToCapacityRatio(allocation.Fit):
    """Scores the weighted requested share of each resource, with the pod on the node, by a curve.

    Attributes:
        resources: Weights by resource.
        shape: The curve, scores from 0 to 100.
    """

    name = "requested_to_capacity_ratio"

    def __init__(self, resources: Mapping[str, float], shape: Points) -> None:
        self.resources = resources
        self.shape = shape

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100; an overcommitted resource counts as full."""
        resources = allocation.table(pod, nodes, self.resources)
        share = allocation.per_cent(np.minimum(resources.requested, resources.capacity), resources.capacity)
        scores = curve(self.shape, share)
        return np.floor(allocation.mean(resources, scores, resources.counts & (scores > 0)) + 0.5)
