"""A stand-in for cluster-autoscaler: its decision to add a node, reduced to what that depends on here.

Once a second it takes the pods that the scheduler has marked unschedulable, and packs them into the nodes that exist,
by requests, taints and tolerations, as cluster-autoscaler's simulation does. For what is left it adds nodes of one
template, as many as the same packing takes. It knows nothing of measured room. The template has no taint of
`spazio.io/full`, as cluster-autoscaler's has none with `--status-taint=spazio.io/full`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kube import quantity, resource
from tests.e2e.kubernetes.control_plane import Kubectl
from tests.e2e.kubernetes.families import Size

_SCAN_SECONDS = 1.0
_BARS = ("NoSchedule", "NoExecute")
_RESOURCES = ("cpu", "memory")


@dataclass(slots=True)
class _Place:
    """A node of the simulation: what is left of its allocatable amounts, and its taints."""

    left: dict[str, float]
    taints: list[dict[str, str]] = field(default_factory=list)

    def take(self, pod: Mapping[str, Any]) -> bool:
        """Put a pod on the node; returns False if it does not go there."""
        asked = resource.requests(pod)
        fits = self.left["pods"] >= 1 and all(asked.get(name, 0.0) <= self.left[name] for name in _RESOURCES)
        if not fits or not all(_tolerates(pod, taint) for taint in self.taints if taint["effect"] in _BARS):
            return False
        self.put(asked)
        return True

    def put(self, asked: Mapping[str, float]) -> None:
        """Subtract what a pod requests."""
        self.left["pods"] -= 1
        for name in _RESOURCES:
            self.left[name] -= asked.get(name, 0.0)


def _tolerates(pod: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    for each in pod["spec"].get("tolerations") or ():
        is_key = not each.get("key") or each["key"] == taint["key"]
        is_value = each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", "")
        if is_key and is_value and each.get("effect", taint["effect"]) == taint["effect"]:
            return True
    return False


class Autoscaler:
    """The stand-in.

    Attributes:
        added: Names of the nodes that it has added.
    """

    def __init__(self, kubectl: Kubectl, size: Size, most: int) -> None:
        """Prepare.

        Args:
            kubectl: The cluster.
            size: Of the nodes that it adds.
            most: Nodes that it adds at most.
        """
        self._kubectl, self._most = kubectl, most
        self._amounts = {"cpu": str(size.cpus), "memory": str(size.memory), "pods": "110"}
        self.added: list[str] = []

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            await self.scan()
            await asyncio.sleep(_SCAN_SECONDS)

    async def scan(self) -> None:
        """Add the nodes that the unschedulable pods need."""
        nodes, pods = await self._kubectl.list("nodes"), await self._kubectl.list("pods")
        places = {node["metadata"]["name"]: self._place(node) for node in nodes if not _is_cordoned(node)}
        for pod in pods:
            name = pod["spec"].get("nodeName")
            if name in places and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                places[name].put(resource.requests(pod))
        new: list[_Place] = []
        for pod in filter(_is_unschedulable, pods):
            if any(node.take(pod) for node in (*places.values(), *new)):
                continue
            made = _Place(_plain(self._amounts))
            if made.take(pod):
                new.append(made)
        for _ in new[: self._most - len(self.added)]:
            await self._add()

    async def _add(self) -> None:
        name = f"added-{len(self.added)}"
        status = {"capacity": self._amounts, "allocatable": self._amounts}
        await self._kubectl.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        self.added.append(name)

    def _place(self, node: Mapping[str, Any]) -> _Place:
        return _Place(_plain(node["status"]["allocatable"]), node["spec"].get("taints") or [])


def _plain(amounts: Mapping[str, str]) -> dict[str, float]:
    return quantity.plain(quantity.parse_all(amounts))


def _is_cordoned(node: Mapping[str, Any]) -> bool:
    return bool(node["spec"].get("unschedulable"))


def _is_unschedulable(pod: Mapping[str, Any]) -> bool:
    """Tell whether the scheduler has found no node for a pod."""
    return not pod["spec"].get("nodeName") and any(
        each["type"] == "PodScheduled" and each["status"] == "False" and each.get("reason") == "Unschedulable"
        for each in pod["status"].get("conditions") or ()
    )


@asynccontextmanager
async def autoscaling(kubectl: Kubectl, size: Size, *, most: int) -> AsyncIterator[Autoscaler]:
    """Run a stand-in for the length of a block."""
    running = Autoscaler(kubectl, size, most)
    task = asyncio.create_task(running.run())
    try:
        yield running
        assert not task.done(), task.exception()
    finally:
        task.cancel()
