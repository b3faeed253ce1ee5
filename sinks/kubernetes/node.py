"""The fields of a Node that the sink needs: its identity, whether it lends, its Mid-tier resources, and its marks."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kube import apply, quantity
from schemas.sections.output import Output, pairs
from sinks.kubernetes import mark
from sinks.kubernetes.mark import Marks

SIDES = ("capacity", "allocatable")


class Node(NamedTuple):
    """A Node as the API server has it.

    Attributes:
        uid: Its uid.
        amounts: Its Mid-tier resources, as `side.resource`; absent: it has none.
        ours: We have applied some of them.
        lends: It has opted in to lending, and lending is on.
        version: Its resourceVersion.
        marks: Its taint and annotations for autoscalers.
    """

    uid: str
    amounts: dict[str, float]
    ours: bool
    lends: bool
    version: str
    marks: Marks


def reader(output: Output) -> Callable[[Mapping[str, Any]], Node]:
    """Return a function that reduces a Node; it raises what `Objects` expects."""
    names, selected = (output.mid_cpu, output.mid_memory), pairs(output.mid_nodes)

    def read(node: Mapping[str, Any]) -> Node:
        status = node.get("status") or {}
        amounts = {
            f"{side}.{name}": float(quantity.parse((status.get(side) or {})[name]))
            for side in SIDES
            for name in names
            if name in (status.get(side) or {})
        }
        metadata = node["metadata"]
        marks = [metadata.get(kind) or {} for kind in ("labels", "annotations")]
        lends = output.mid and all(any(each.get(key) == value for each in marks) for key, value in selected)
        owned = apply.owns(node, "status", "status")
        return Node(str(metadata["uid"]), amounts, owned, lends, str(metadata["resourceVersion"]), mark.read(node))

    return read
