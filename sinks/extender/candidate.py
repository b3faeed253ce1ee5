"""What a strategy sees: one pod, and the nodes that the scheduler asks about, as arrays.

Nothing here is asked for over a network; the board holds it in memory and takes the nodes' rows out of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Container(NamedTuple):
    """CPU of one container of a pod, in cores; None: not stated."""

    request: float | None
    limit: float | None


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod that is to be placed.

    Attributes:
        uid: Its UID.
        namespace: Its namespace.
        name: Its name.
        workload: Its workload class, as `PodFacts.workload`.
        scheduler: spec.schedulerName.
        owner_kind: Kind of its controller; empty: none.
        priority: Its priority; 0: not stated.
        labels: Its labels.
        annotations: Its annotations.
        requests: By resource, as the scheduler counts them, in cores, bytes and counts.
        limits: Sums of the limits that are stated.
        nonzero: cpu and memory as kube-scheduler's scores count them: 0.1 cores and 200 MiB for each container that
            does not state a request.
        containers: CPU of each container, for predictions by container.
        overhead_cpu: Cores of the pod's overhead.
        static: The kubelet runs it from a file; nobody can place it.
    """

    uid: str
    namespace: str
    name: str
    workload: str
    scheduler: str
    owner_kind: str
    priority: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requests: Mapping[str, float]
    limits: Mapping[str, float]
    nonzero: Mapping[str, float]
    containers: tuple[Container, ...]
    overhead_cpu: float = 0.0
    static: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """Nodes; all arrays are (nodes,), NaN where nothing is known.

    Attributes:
        names: Their names.
        room: Pods of this pod's kind that fit, before reservations.
        sure: How many surely do: the lower bound of it.
        unseen: What pods of the kind take is assumed there, since nobody has seen one.
        reserved: Places held on it for pods that telemetry does not show yet.
        binding: What runs out first there; empty: unknown.
        allocatable: By resource, in cores, bytes and counts; every resource that the pod requests has an entry.
        requested: Sums of the effective requests of its pods, held ones among them; same keys.
        nonzero: cpu and memory requests of its pods with the stand-ins of `Pod.nonzero`.
        pods: Pods there, held ones among them.
        cores: CPUs of the machine (capacity, not allocatable).
        usage_cpu: Smoothed share of the CPUs in use, 0..1.
        recent_cpu: Predicted cores of pods that were bound so lately that `usage_cpu` lacks them, each predicted as
            `target_load_packing.predicted` does.
        peak: Predicted peak of everything on the node, by cpu and memory, in cores and bytes.
        unpredicted: Requests of pods there that the peak does not know, held ones among them; by cpu and memory.
        labels: Labels of each node.
        annotations: Annotations of each node.
        price: Price per hour now.
        median_price: Median of it over the window of settings.
        interruption_rate: Interruptions an hour over that window.
        spot: Capacity that may be taken away at short notice.
    """

    names: Sequence[str]
    room: Array
    sure: Array
    unseen: Mask
    reserved: Array
    binding: Sequence[str]
    allocatable: Mapping[str, Array]
    requested: Mapping[str, Array]
    nonzero: Mapping[str, Array]
    pods: Array
    cores: Array
    usage_cpu: Array
    recent_cpu: Array
    peak: Mapping[str, Array]
    unpredicted: Mapping[str, Array]
    labels: Sequence[Mapping[str, str]]
    annotations: Sequence[Mapping[str, str]]
    price: Array
    median_price: Array
    interruption_rate: Array
    spot: Mask
