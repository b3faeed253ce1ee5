"""Karpenter, with the NodePool of docs/kubernetes.md and its provider for KWOK, which calls no cloud.

The provider creates Node objects, and KWOK's kubelets do the rest. It subtracts 100 millicores and 10 MiB from each
instance type for the kubelet, so the types have that much more, and what is allocatable is the size that is asked for.
A type of half that size and half the price is there, too.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from bus import server
from tests.e2e.kubernetes import cluster
from tests.e2e.kubernetes.control_plane import PROGRAMS, Kubectl
from tests.e2e.kubernetes.families import Size
from tests.e2e.kubernetes.lab import Lab
from tests.e2e.kubernetes.output.writing import install
from tests.support.project.documents import ROOT

_POOL = "karpenter.sh/nodepool"
_CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
_KUBELET = Size(100, 10 << 20)  # millicores and bytes


class Karpenter:
    """Karpenter while it runs.

    Attributes:
        component: The program, with its log.
    """

    def __init__(self, kubectl: Kubectl, component: cluster.Component) -> None:
        self._kubectl, self.component = kubectl, component

    async def added(self) -> list[dict[str, Any]]:
        """Return the nodes that Karpenter has added, the oldest first."""
        nodes = [node for node in await self._kubectl.list("nodes") if _POOL in node["metadata"].get("labels", {})]
        return sorted(nodes, key=created_at)

    async def may_remove(self) -> bool:
        """Tell whether all nodes that it has added have been left alone for as long as `consolidateAfter`."""
        claims = (await self._kubectl.call("GET", "/apis/karpenter.sh/v1/nodeclaims"))["items"]
        states = [{each["type"]: each["status"] for each in claim["status"]["conditions"]} for claim in claims]
        return all(each.get("Consolidatable") == "True" for each in states)


def created_at(node: Mapping[str, Any]) -> datetime:
    """Return when a node was created, to the second."""
    return datetime.strptime(node["metadata"]["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def node_pool() -> dict[str, Any]:
    """Return the NodePool that users are given."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (block,) = (block for block in page.split("```")[1::2] if block.startswith("yaml\n") and "kind: NodePool" in block)
    pool: dict[str, Any] = yaml.safe_load(block.removeprefix("yaml\n"))
    return pool


def _instance_type(name: str, size: Size) -> dict[str, Any]:
    amounts = {"cpu": f"{1000 * size.cpus + _KUBELET.cpus}m", "memory": str(size.memory + _KUBELET.memory)}
    labels = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    needed = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {
        "name": name, "architecture": "amd64", "operatingSystems": ["linux"], "resources": amounts | {"pods": "110"},
        "offerings": [{"Price": size.cpus / 10, "Available": True, "Requirements": needed}],
    }  # fmt: skip


@asynccontextmanager
async def karpenter(
    running: Lab, size: Size, *, most: int, disruption: Mapping[str, str] | None = None
) -> AsyncIterator[Karpenter]:
    """Run it beside a cluster for the length of a block.

    Args:
        running: The cluster.
        size: Of the nodes that the NodePool allows.
        most: Nodes that it adds at most.
        disruption: When it removes nodes, instead of what the page has.
    """
    await install(running.kubectl, *map(str, sorted((PROGRAMS / "karpenter-crds").glob("*.yaml"))))
    node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
    await running.kubectl.call("POST", "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", node_class)
    pool = node_pool()
    template = pool["spec"]["template"]["spec"]
    template["nodeClassRef"] = _CLASS
    ((name,),) = (each["values"] for each in template["requirements"])
    pool["spec"]["disruption"] = disruption or pool["spec"]["disruption"]
    pool["spec"]["limits"] = {"cpu": f"{most * (1000 * size.cpus + _KUBELET.cpus)}m"}
    await running.kubectl.call("POST", "/apis/karpenter.sh/v1/nodepools", pool)
    types = running.folder / "instance-types.json"
    half = Size(size.cpus // 2, size.memory // 2)
    types.write_text(json.dumps([_instance_type(name, size), _instance_type(f"half-{name}", half)]))
    component = _component(running, types)
    try:
        await asyncio.to_thread(component.start)
        yield Karpenter(running.kubectl, component)
        assert component.alive, component.log.read_text()[-4000:]
    finally:
        component.kill()


def _component(running: Lab, types: Path) -> cluster.Component:
    metrics, probe = server.free_port(0), server.free_port(0)
    return cluster.Component(
        "karpenter",
        [
            f"--instance-types-file-path={types}", "--disable-leader-election=true", "--log-level=debug",
            f"--metrics-port={metrics}", f"--health-probe-port={probe}",
        ],
        running.folder,
        f"http://127.0.0.1:{probe}/readyz",
        KUBECONFIG=str(running.plane.kubeconfig()),
    )  # fmt: skip
