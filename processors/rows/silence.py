"""Which nodes have been silent for so long that a partition forgets them, so that names do not accumulate.

A node is forgotten after an hour of silence. One node can send the blocks of an hour in a burst, so of more than two
nodes an hour counts only if several have seen it. Where nodes come and go one by one there is no such hour, and what is
kept needs a bound all the same. There a silent node is forgotten if Kubernetes has deleted it. All but the 16 that were
heard last are forgotten, too, if they had been silent for an hour when a second node last agreed with the event second:
a burst begins after that.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

_SILENT_SECONDS = 3600
_KEPT = 16  # of the silent nodes: about a MB of state


class Passed(NamedTuple):
    """Event time that a partition has seen pass.

    Attributes:
        second: The event second.
        since: Where it began.
        joint: Since when several nodes have seen it pass.
        agreed: The second when two nodes last agreed with it.
    """

    second: int
    since: int
    joint: int
    agreed: int


def silent(heard: Mapping[str, int], deleted: Container[str], passed: Passed) -> set[str]:
    """Return the nodes to forget.

    Args:
        heard: The event second in which each node was last heard.
        deleted: Those that Kubernetes has deleted.
        passed: Event time of their partition.
    """
    oldest, agreed = passed.second - _SILENT_SECONDS, passed.agreed - _SILENT_SECONDS
    if passed.since >= oldest:
        return set()
    nodes = {node: second for node, second in heard.items() if second < oldest}
    if passed.joint < oldest:
        return set(nodes)
    gone = {node for node in nodes if node in deleted}
    if passed.since < agreed:
        in_order = sorted(nodes.keys() - gone, key=lambda node: (nodes[node], node))
        gone |= {node for node in in_order[:-_KEPT] if nodes[node] < agreed}
    return gone
