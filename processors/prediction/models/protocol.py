"""What every peak model offers, and what it predicts from."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from processors.prediction import moments
from processors.prediction.scoring import conformal
from schemas.sections.prediction import Predict

Array = NDArray[np.float64]


class Pods(NamedTuple):
    """The pods of some nodes.

    Attributes:
        row: (pods,) row of its node and priority class, as of `tier.group.row`.
        request: (pods, resources) cores and bytes.
        percentile: (pods, resources) percentiles of its usage that settings ask for; NaN: nothing was seen of it.
        moments: Mean and variance of its usage, one row a pod.
    """

    row: NDArray[np.intp]
    request: Array
    percentile: Array
    moments: moments.State


class Evidence(NamedTuple):
    """Past usage of some nodes, read once for all models; groups are those of `tier.group`.

    Nodes do not depend on each other. In a back-test a node at another time is another node.

    Attributes:
        size: (nodes, resources) cores and bytes of the machine.
        percentile: (nodes, groups, resources) percentiles of usage that settings ask for; NaN: nothing was seen.
        moments: Mean and variance of usage, (nodes x groups) rows.
        spread: Usage as shares of the size, (nodes, groups, resources), and how far peaks rise above its mean.
        lists_pods: (nodes,) True: the node's pods are known.
        pods: The pods.
    """

    size: Array
    percentile: Array
    moments: moments.State
    spread: conformal.Spread
    lists_pods: NDArray[np.bool_]
    pods: Pods


class PeakModel(Protocol):
    """Predicts the highest usage over the horizon. It keeps no state: what it needs of the past is evidence.

    Attributes:
        name: As settings name it, and its file.
    """

    name: str

    def peaks(self, evidence: Evidence, settings: Predict, /) -> Array:
        """Return (nodes, groups, resources) peaks in cores and bytes; NaN: the model does not predict this group."""
