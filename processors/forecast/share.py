"""What one node may contribute to the usage of a workload, so that none raises a forecast alone.

A node measures its pods, and no other service can check that. A workload's pods are alike, so from three nodes on those
of the node whose pods use most, each, count for at most `MOST` times the mean of the pods on other nodes. What pods
request is never cut: a leader that works while the others wait was given room for it. With N pods, p of them on a node
that lies, a mean m of the others and a request r, the usage stays within

    (N - p) m  <=  usage  <=  (N - p) m + p max(MOST m, r)

Only the greatest contribution is bounded: this holds one liar, as `processors.model.fair_share` does.

Ready pods that no node has measured, as those of a node that is silent for a while, use as much as the others each:
their absence is none of load. A workload of which nothing is measured is left out.
"""

from collections.abc import Mapping

from processors.forecast.sums import Greatest, Sum, Workload

MOST = 3.0  # times the mean of the pods on other nodes; load balancers differ by less
LEAST_NODES = 3  # of two nodes that disagree either may be wrong


def bounded(sums: Mapping[Workload, Sum]) -> dict[Workload, Sum]:
    """Return the sums of all partitions, the greatest contribution of a node bounded, with what unmeasured pods use."""
    return {workload: _whole(_bounded(total)) for workload, total in sums.items() if total.measured or any(total.used)}


def _whole(total: Sum) -> Sum:
    """Return a sum whose usage is that of all ready pods; sums of an earlier version stay as they are."""
    if not 0 < total.measured < total.ready:
        return total
    cpu, memory = total.used
    ratio = total.ready / total.measured
    return total._replace(used=(cpu * ratio, memory * ratio))


def _bounded(total: Sum) -> Sum:
    if total.nodes < LEAST_NODES:
        return total
    cpu, memory = (
        _cut(used, total.measured, greatest, requested / total.pods if total.pods else 0.0)
        for used, greatest, requested in zip(total.used, total.greatest, total.requested, strict=True)
    )
    return total._replace(used=(cpu, memory))


def _cut(used: float, measured: int, greatest: Greatest, requested: float) -> float:
    """Return what all pods use if the node that uses most is bounded.

    Args:
        used: Amount of all pods.
        measured: Number of all pods.
        greatest: Of that node.
        requested: Amount that a pod requests.

    >>> _cut(used=69.0, measured=10, greatest=Greatest(64.5, 1), requested=0.5)
    6.0
    """
    others = measured - greatest.pods
    if others <= 0 or not greatest.pods:
        return used
    rest = max(0.0, used - greatest.used)
    most = greatest.pods * max(MOST * rest / others, requested)
    return used if greatest.used <= most else rest + most
