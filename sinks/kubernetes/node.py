"""What the sink looks at of a Node: who it is, and the extended resources that it has of ours."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kube import apply, quantity
from schemas.sections.placement import Output

SIDES = ("capacity", "allocatable")


class Node(NamedTuple):
    """A Node as the API server has it.

    Attributes:
        uid: Its uid.
        amounts: What it has of the Mid-tier resources, as `side.resource`; absent: it has none.
        ours: We have written some of that.
    """

    uid: str
    amounts: dict[str, float]
    ours: bool


def reader(output: Output) -> Callable[[Mapping[str, Any]], Node]:
    """Return a function that reduces a Node; it raises what `Objects` expects."""
    names = (output.mid_cpu, output.mid_memory)

    def read(node: Mapping[str, Any]) -> Node:
        status = node.get("status") or {}
        amounts = {
            f"{side}.{name}": float(quantity.parse((status.get(side) or {})[name]))
            for side in SIDES
            for name in names
            if name in (status.get(side) or {})
        }
        return Node(str(node["metadata"]["uid"]), amounts, apply.owns(node, "status", "status"))

    return read
