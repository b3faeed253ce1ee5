"""The input of a strategy: one pod, and the nodes that the scheduler asks about, as arrays.

`ClusterState` makes these from memory, without I/O.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Container(NamedTuple):
    """CPU of one container of a pod, in cores; None: the pod does not state it."""

    request: float | None
    limit: float | None


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod to place.

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
        limits: Sums of the stated limits.
        nonzero: cpu and memory as kube-scheduler's scores count them: 0.1 cores and 200 MiB for each container without
            a request.
        containers: CPU of each container, for predictions by container.
        overhead_cpu: Cores of the pod's overhead.
        pinned: Its required affinity names one node.
        nominated: Node on which the scheduler has evicted pods for it; empty: none.
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
    pinned: bool = False
    nominated: str = ""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidate nodes; all arrays are (nodes,), NaN where a value is unknown.

    Attributes:
        names: Names of the nodes.
        room: Pods of this pod's kind that fit, before reservations.
        sure: Lower bound of `room`.
        withheld: What `sure` lacks for as long as the cost of this pod's kind is not evidence enough.
        unseen: The cost of this pod's kind is an assumption on this node, because no such pod has run there.
        running: Pods of this pod's kind that the node reports as running; 0: none, it does not report the kind, or the
            node is silent, and no evidence would come.
        starting: Pods of any kind that are on their way to the node, without those that do not run long after the bind,
            of which no evidence comes.
        reserved: Room reserved for pods that telemetry does not show yet, in pods of this kind.
        binding: The resource that runs out first; empty: unknown.
        allocatable: By resource, in cores, bytes and counts; every resource that the pod requests or limits has an
            entry, another may have none.
        requested: Sums of the effective requests of the node's pods and reservations; same keys.
        nonzero: cpu and memory requests of the node's pods and reservations with the stand-ins of `Pod.nonzero`. Their
            facts are sums, so that one counts a stand-in once, if no container of it has the request; kube-scheduler
            counts one for each container without.
        pods: Number of pods and reservations.
        cores: CPUs of the machine (capacity, not allocatable).
        usage_cpu: Share of the CPUs in use, mean of the last second that was reported, 0..1.
        recent_cpu: Predicted cores of pods that `usage_cpu` does not show yet, as `target_load_packing.predicted`
            predicts them.
        peak: Predicted peak usage of the node, by cpu and memory, in cores and bytes.
        unpredicted: Requests of pods and reservations that the peak does not include; by cpu and memory.
        labels: Labels of each node.
        annotations: Annotations of each node.
        price: Current price per hour.
        median_price: Median price over the window of the settings.
        interruption_rate: Interruptions per hour over that window.
        spot: Capacity that the provider may reclaim at short notice.
    """

    names: Sequence[str]
    room: Array
    sure: Array
    withheld: Array
    unseen: Mask
    running: Array
    starting: Array
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
