"""A control plane that all tests of a file share, and a cluster of it that a test has for itself."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.floor import scaler
from tests.e2e.kubernetes.output.writing import METRICS, SCALERS, install
from tests.e2e.kubernetes.rights.rules import LEASE, MANIFESTS


@pytest.fixture(scope="module")
def shared(planes: Callable[..., ControlPlane]) -> ControlPlane:
    return planes("--allow-privileged=true")


@pytest.fixture
async def cluster(shared: ControlPlane) -> AsyncIterator[Kubectl]:
    """A cluster with everything installed, a node, a pod and an autoscaler, and nothing written to them."""
    async with Kubectl(shared) as kubectl:
        # With the policies of admission: what they leave of each right must suffice.
        await install(kubectl, "namespace.yaml", "crd.yaml", "admission.yaml", *MANIFESTS)
        await kubectl.node("n1", labels={"by": "kubelet"})
        await kubectl.pod("p1")
        await scaler(kubectl, spazio_floor="true")
        yield kubectl
        for path in (f"{METRICS}/n1", f"{SCALERS}/web", "/api/v1/nodes/n1", LEASE):
            await kubectl.call("DELETE", path)
        await kubectl.delete("p1")
