"""An API server of nodes as an object, and a sink that marks full ones on it."""

import copy
from typing import Any

from bus.health import Health
from kube import answer
from schemas.messages.placement import Shortage
from schemas.sections.output import Output
from sinks.kubernetes.full import Full
from sinks.kubernetes.writing.pace import Pace
from sinks.kubernetes.writing.writer import Writer
from tests.unit.sinks.kubernetes.nodes import NodeServer, access

START = 1_800_000_000.0
NAMES = [f"n{number}" for number in range(10)]
ON = {"full": True, "keep": True, "full_seconds": 10}


class Server(NodeServer):
    """Keeps nodes and the Lease; a merge patch of another version than the node's is refused."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names or NAMES:
            self.add(name)
        self.patched: list[str] = []
        self.races = 0
        self.forbidden = False

    def add(self, name: str) -> None:
        self.version += 1
        metadata = {"name": name, "uid": f"u{self.version}", "resourceVersion": str(self.version)}
        self.nodes[name] = {"metadata": metadata, "spec": {}}

    def write(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.forbidden:
            raise answer.Forbidden("verb patch on nodes")
        if self.races and name in self.nodes:
            self.races -= 1
            self.touch(name)
        thing = self.current(name, body)
        self.patched.append(name)
        if "spec" in body:
            thing["spec"] = {"taints": body["spec"]["taints"] or []}
        notes = (thing["metadata"].get("annotations") or {}) | (body["metadata"].get("annotations") or {})
        thing["metadata"]["annotations"] = {key: value for key, value in notes.items() if value is not None}
        self.touch(name)
        return copy.deepcopy(thing)

    @property
    def full(self) -> list[str]:
        taints = {name: thing["spec"].get("taints") or () for name, thing in self.nodes.items()}
        return sorted(name for name, each in taints.items() if any(taint["key"] == "spazio.io/full" for taint in each))

    @property
    def kept(self) -> list[str]:
        notes = {name: thing["metadata"].get("annotations") or {} for name, thing in self.nodes.items()}
        return sorted(name for name, each in notes.items() if each.get("karpenter.sh/do-not-disrupt") == "true")


class Sink:
    """The part, looked at by tests; the watch of nodes is current at each look."""

    def __init__(self, server: Server, **output: Any) -> None:
        self.server, self.now, self.health = server, START, Health()
        self.output = Output.model_validate(ON | output)
        granted = access(server, self.output, self.health, lambda: self.now)
        self.nodes, self.latest, self.lease, self.part = granted.nodes, granted.latest, granted.lease, Full(granted)
        self.writer = Writer("full", self.health, Pace(1e6, 1e-3))
        self.follow()

    def follow(self) -> None:
        for key, _ in list(self.nodes):
            if key not in self.server.nodes:
                self.nodes.drop(key)
        for thing in self.server.nodes.values():
            self.nodes.put(copy.deepcopy(thing))

    def hear(self, *full: str, stranded: tuple[str, ...] = (), replica: str = "a", age: float = 0) -> None:
        at_us = round((self.now - age) * 1e6)
        self.latest.hear(
            Shortage(
                replica=replica, at_us=at_us, until_us=at_us + 10_000_000, pods=len(full), waiting=[], full=list(full),
                stranded=list(stranded),
            )
        )  # fmt: skip

    async def look(self, at: float) -> list[str]:
        """Return the nodes that have the taint after a look."""
        self.now = START + at
        self.follow()
        await self.part.refresh(self.writer)
        return self.server.full

    async def through(self, begin: int, end: int, *full: str, **report: Any) -> list[str]:
        """Look once a second while extenders say this; return the nodes that have the taint then."""
        for at in range(begin, end):
            self.now = START + at
            self.hear(*full, **report)
            await self.look(at)
        return self.server.full
