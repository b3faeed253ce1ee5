"""What lies in deploy/kubernetes is what an API server takes, field by field."""

import pytest

from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import MANIFESTS, documents, path_of, put

pytestmark = pytest.mark.slow

SPACES = ("spazio", "spazio-agents")


async def test_the_api_server_takes_every_manifest_without_a_field_that_it_does_not_know(
    plane: ControlPlane, kubectl: Kubectl
) -> None:
    names = sorted(str(path.relative_to(MANIFESTS)) for path in MANIFESTS.rglob("*.yaml"))
    assert len(names) == 25
    for thing in documents("namespace.yaml"):
        await put(kubectl, thing)
    for name in names:
        for thing in documents(name):
            space = thing["metadata"].get("namespace", "spazio")
            assert (
                thing["kind"] == "Namespace" or space in SPACES or (name.startswith("examples/") and space == "default")
            )
            made = await put(kubectl, thing, dry_run=True)
            assert made["kind"] == thing["kind"], made
            assert name == "namespace.yaml" or "spec" not in thing or made["metadata"]["uid"]
    (crd,) = documents("crd.yaml")
    assert (await kubectl.call("GET", path_of(crd).rpartition("/")[0]))["items"] == []
