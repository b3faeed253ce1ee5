"""Trimaran's TargetLoadPacking: fill nodes up to a target CPU utilization, then prefer the emptier ones.

The utilization is what is measured, plus what this pod and those bound just before it are expected to use. Up to the
target X the score rises from X to 100, beyond it falls from X to 0, with a leap at X. It never refuses a node, and
looks at nothing but CPU.

Source: kubernetes-sigs/scheduler-plugins, `pkg/trimaran/targetloadpacking`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sinks.extender.candidate import Array, Candidates, Container, Mask, Pod

_MULTIPLIER = 1.5  # a container is expected to use so many times what it requests
_UNSTATED_MILLI = 1000  # what one uses that states neither request nor limit
_DECIMALS = 9  # at the leap nothing may hang on the last bit of a sum


def predicted(pod: Pod) -> float:
    """Return the cores that a pod is expected to use: its containers' limits, else requests by 1.5, else 1 each.

    >>> from sinks.extender.candidate import Container
    >>> containers = Container(0.1, None), Container(None, 2)
    >>> predicted(Pod("u", "ns", "p", "ns/p", "", "", 0, {}, {}, {}, {}, {}, containers, 0.01))
    2.16
    """
    return expected(pod.containers, pod.overhead_cpu)


def expected(containers: Iterable[Container], overhead: float = 0.0) -> float:
    """Return the cores that containers are expected to use, and what comes on top of them."""
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
        target: Utilization to pack to, as a ratio.
    """

    name = "target_load_packing"

    def __init__(self, target: float) -> None:
        self.target = target

    def refuse(self, pod: Pod, nodes: Candidates) -> Mapping[str, Mask]:  # noqa: ARG002 # it only ranks
        """Refuse nothing."""
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

    def needs(self, pod: Pod, nodes: Candidates, place: int) -> Sequence[str]:  # noqa: ARG002
        """Say nothing, since nothing is refused."""
        return []
