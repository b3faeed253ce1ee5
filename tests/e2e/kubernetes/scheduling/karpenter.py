"""The real Karpenter, with its provider of KWOK's nodes, on the cluster of a test."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.e2e.kubernetes import control_plane
from tests.e2e.kubernetes.cluster import Component
from tests.e2e.kubernetes.control_plane import PROGRAMS, ControlPlane, Kubectl
from tests.e2e.kubernetes.families import Size

_POOLED = "karpenter.sh/nodepool"
CRDS = PROGRAMS / "karpenter-crds"
_POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    },
}
_CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}


def missing() -> str:
    """Say why Karpenter cannot be run here; empty: it can."""
    return control_plane.missing("karpenter", "karpenter-crds")


class Karpenter(Component):
    """Karpenter for nodes of one size."""

    def __init__(self, plane: ControlPlane, kubectl: Kubectl, size: Size) -> None:
        """Describe it.

        Args:
            plane: The control plane.
            kubectl: A client of it.
            size: Of the nodes that it adds.
        """
        health, metrics = control_plane._free_port(), control_plane._free_port()
        self._types = plane.folder / "instance-types.json"
        resources = {"cpu": str(size.cpus), "memory": str(size.memory), "pods": "110", "ephemeral-storage": "20Gi"}
        offering = {"capacityType": "on-demand", "zone": "test-zone-a", "price": 0.2}
        self._types.write_text(
            json.dumps(
                [
                    {
                        "name": "plain", "architecture": "amd64", "operatingSystems": ["linux"],
                        "offerings": [offering], "resources": resources,
                    }
                ]
            )
        )  # fmt: skip
        super().__init__(
            "karpenter",
            [
                f"--instance-types-file-path={self._types}", f"--health-probe-port={health}",
                f"--metrics-port={metrics}", "--disable-leader-election=true", "--log-level=info",
            ],
            plane.folder,
            f"http://127.0.0.1:{health}/healthz",
        )  # fmt: skip
        environ = {"KUBECONFIG": str(plane.kubeconfig()), "SYSTEM_NAMESPACE": "kube-system"}
        self._environ = {**(self._environ or {}), **environ}
        self._kubectl = kubectl

    async def install(self) -> None:
        """Make its kinds of objects known, and describe the nodes that it may add."""
        for file in sorted(CRDS.glob("*.yaml")):
            definition = yaml.safe_load(file.read_text())
            await self._kubectl.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        for path, wanted in (
            ("karpenter.kwok.sh/v1alpha1/kwoknodeclasses", _CLASS),
            ("karpenter.sh/v1/nodepools", _POOL),
        ):
            await self._created(f"/apis/{path}", wanted)

    async def _created(self, path: str, wanted: dict[str, Any]) -> None:
        async with asyncio.timeout(20):  # until the API server serves the kind
            while True:
                with contextlib.suppress(AssertionError, OSError):
                    await self._kubectl.call("POST", path, wanted)
                    return
                await asyncio.sleep(0.3)

    async def added(self) -> list[str]:
        """Return the nodes that it has added."""
        nodes = await self._kubectl.list("nodes")
        return [node["metadata"]["name"] for node in nodes if _POOLED in node["metadata"].get("labels", {})]


@asynccontextmanager
async def karpenter(plane: ControlPlane, kubectl: Kubectl, size: Size) -> AsyncIterator[Karpenter]:
    """Run Karpenter for the length of a block."""
    running = Karpenter(plane, kubectl, size)
    await running.install()
    try:
        await asyncio.to_thread(running.start)
        yield running
        assert running.alive, running.log.read_text()[-4000:]
    finally:
        running.kill()
