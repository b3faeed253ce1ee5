"""An API server of nodes and a Lease as an object, and what a part that writes to its nodes works with."""

import copy
from collections.abc import Callable
from typing import Any

from bus.health import Health
from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube
from schemas.sections.output import Output
from sinks.kubernetes import node
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.node import Node
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing.access import Access
from sinks.kubernetes.writing.holder import Holder
from sinks.kubernetes.writing.lease import Lease


class NodeServer(Api):
    """Keeps nodes and the Lease; what a write to a node does, a subclass says."""

    def __init__(self) -> None:
        super().__init__(Kube())
        self.version, self.lease = 0, dict[str, Any]()
        self.nodes: dict[str, dict[str, Any]] = {}

    def touch(self, name: str) -> None:
        self.version += 1
        self.nodes[name]["metadata"]["resourceVersion"] = str(self.version)

    async def send(self, method: str, path: str, body: Any = None, *, query: Any = None, **_: Any) -> dict[str, Any]:
        if "leases" in path:
            if method == "GET" and not self.lease:
                raise answer.Missing("none")
            if method != "GET":
                self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": "1"}}
            return self.lease
        if method == "GET":
            name = query["fieldSelector"].removeprefix("metadata.name=")
            return {"items": [copy.deepcopy(self.nodes[name])] if name in self.nodes else []}
        return self.write(path.removeprefix("/api/v1/nodes/").removesuffix("/status"), body)

    def write(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def current(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the node that a write is for; it is refused if it is of another version, or the node is gone."""
        if name not in self.nodes:
            raise answer.Missing("none")
        if body["metadata"]["resourceVersion"] != self.nodes[name]["metadata"]["resourceVersion"]:
            raise answer.Conflict("changed")
        return self.nodes[name]


def access(server: NodeServer, output: Output, health: Health, clock: Callable[[], float]) -> Access:
    """Return the access of one part, with a watch of nodes that is whole and messages that are current."""
    latest, nodes = Latest(), Objects[Node]("nodes", node.reader(output))
    latest.current.set()
    nodes.whole = True
    lease = Holder(Lease(server, output.full_lease, output.full_lease_seconds), health)
    return Access(server, nodes, latest, output, lease, clock)
