"""Whether a node has room for a pod that is being bound to it, by the rule of the strategy `availability`."""

from dataclasses import replace

from schemas.messages.facts import PodFacts
from sinks.extender.state import stranded
from sinks.extender.state.cluster_state import FRESH, ClusterState
from sinks.extender.strategy.availability import Availability


def has(cluster_state: ClusterState, facts: PodFacts, now_us: int) -> bool:
    """Tell whether a node that reports has room for one more pod.

    Args:
        cluster_state: Nodes and pods; the pod may have a reservation and is not bound yet.
        facts: Of the pod, with its node.
        now_us: The time.
    """
    rows = cluster_state.rows.rows([facts.node])
    if cluster_state.states(rows, now_us)[0] != FRESH:
        return False
    pod = stranded.pod(facts.workload, facts.requests)
    nodes = cluster_state.candidates(pod, [facts.node], rows, now_us)
    if cluster_state.reservations.row_of(facts.pod) == rows[0]:
        nodes = replace(nodes, reserved=nodes.reserved - 1, starting=nodes.starting - 1)
    return not Availability().refuse(pod, nodes)
