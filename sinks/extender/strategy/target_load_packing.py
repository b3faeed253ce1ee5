"""Trimaran's TargetLoadPacking: fill nodes up to a target CPU utilization, then prefer the emptier ones.

The utilization is that of the last second reported, plus the expected usage of this pod and of pods that were bound
just before it. Up to the target X the score rises from X to 100; beyond X it falls from X to 0. The strategy never
refuses a node, and uses CPU only.

Source: kubernetes-sigs/scheduler-plugins, `pkg/trimaran/targetloadpacking`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Container, Mask, Pod

_MULTIPLIER = 1.5  # expected usage of a container, as a multiple of its request
_UNSTATED_MILLI = 1000  # expected usage of a container with neither request nor limit
_DECIMALS = 9  # the last bit of a sum must not decide on which side of the target a node is


def predicted(pod: Pod) -> float:
    """Return the cores that a pod is expected to use: for each container its limit, else 1.5 times its request, else 1.

    >>> from sinks.extender.candidate import Container
    >>> containers = Container(0.1, None), Container(None, 2)
    >>> predicted(Pod("u", "ns", "p", "ns/p", "", "", 0, {}, {}, {}, {}, {}, containers, 0.01))
    2.16
    """
    return expected(pod.containers, pod.overhead_cpu)


def expected(containers: Iterable[Container], overhead: float = 0.0) -> float:
    """Return the cores that containers are expected to use, with the pod's overhead."""
    milli = math.ceil(overhead * 1000 - 1e-6)
    for container in containers:
        if container.limit is not None:
            milli += math.ceil(container.limit * 1000 - 1e-6)
        elif container.request is not None:
            milli += math.floor(math.ceil(container.request * 1000 - 1e-6) * _MULTIPLIER + 0.5)
        else:
            milli += _UNSTATED_MILLI
    return milli / 1000


class TargetLoadPacking:
    """Ranks by expected CPU utilization; nodes without telemetry score 0.

    Attributes:
        target: Target utilization, 0..1.
    """

    name = "target_load_packing"

    def __init__(self, target: float) -> None:
        self.target = target

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:  # noqa: ARG002 # it only ranks
        """Return no node."""
        return {}

    def score(self, pod: Pod, nodes: Candidates) -> Array:
        """Return (nodes,) whole scores from 0 to 100."""
        used = nodes.usage_cpu * nodes.cores + np.nan_to_num(nodes.recent_cpu) + predicted(pod)
        share = np.full(len(nodes.names), np.nan)
        np.divide(100 * used, nodes.cores, out=share, where=nodes.cores > 0)
        share, target = np.round(share, _DECIMALS), round(100 * self.target, _DECIMALS)
        rising = (100 - target) * share / target + target
        falling = target * (100 - share) / (100 - target)
        score = np.floor(np.where(share <= target, rising, falling) + 0.5)
        return np.where((share >= 0) & (share <= 100), score, 0.0)

    def needs(self, pod: Pod, nodes: Candidates, index: int) -> Sequence[str]:  # noqa: ARG002
        """Return nothing, because the strategy refuses no node."""
        return []
