"""The Helm chart on a real API server: installed, upgraded, and removed without a trace."""

import asyncio
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl, missing
from tests.e2e.kubernetes.output.writing import path_of
from tests.support.project.charts import CHART, DEPLOY, helm, rendered, rendered_by
from tests.support.server.raw import eventually

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing("helm")), reason=missing("helm"))]

# What the API server itself keeps, and makes again; its service appears some time after it has started.
_SERVICE = "services default/kubernetes"
_ITS_OWN = ("events", "leases", "endpoints", "endpointslices", "apiservices", "flowschemas", "ipaddresses")


async def everything(kubectl: Kubectl) -> set[str]:
    """Return the paths of all objects of a cluster."""
    groups = (await kubectl.call("GET", "/apis"))["groups"]
    result = set[str]()
    for version in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
        resources = (await kubectl.call("GET", version))["resources"]
        for name in (
            resource["name"]
            for resource in resources
            if "list" in resource["verbs"] and resource["name"] not in _ITS_OWN
        ):
            items = (await kubectl.call("GET", f"{version}/{name}"))["items"]
            result |= {
                f"{name} {resource['metadata'].get('namespace', '')}/{resource['metadata']['name']}"
                for resource in items
            }
    return result - {_SERVICE}


async def finish_deletions(kubectl: Kubectl) -> None:
    """Do what controllers would: let go of claims that no pod uses, and of empty namespaces."""
    for claim in await kubectl.list("persistentvolumeclaims"):
        path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/persistentvolumeclaims/{claim['metadata']['name']}"
        if "deletionTimestamp" in claim["metadata"]:
            await kubectl.call("PATCH", path, {"metadata": {"finalizers": None}}, patch="merge-patch+json")
    for space in await kubectl.list("namespaces"):
        if "deletionTimestamp" in space["metadata"]:
            space["spec"]["finalizers"] = []
            await kubectl.call("PUT", f"/api/v1/namespaces/{space['metadata']['name']}/finalize", space)
    await eventually(lambda: own_group_is_gone(kubectl), 30)


async def own_group_is_gone(kubectl: Kubectl) -> bool:
    """Tell whether the API server has stopped to serve our own resource, which it does some time after its deletion."""
    return not any("spazio" in group["name"] for group in (await kubectl.call("GET", "/apis"))["groups"])


async def run(plane: ControlPlane, command: str, *arguments: str, values: dict[str, Any] | None = None) -> str:
    """Run helm on the cluster for the release `spazio`, whose record is in the namespace `default`."""
    config: Path = plane.kubeconfig()
    given = (command, "spazio", *arguments, "--namespace", "default")
    answer = await asyncio.to_thread(helm, *given, values=values, kubeconfig=config)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


async def test_what_is_installed_is_what_is_rendered_and_nothing_is_left(plane: ControlPlane, kubectl: Kubectl) -> None:
    before = await everything(kubectl)
    small = {"profile": "small"}
    notes = await run(plane, "install", str(CHART), values=small)
    assert "credentials/kubernetes.yaml" in notes
    process = "/apis/apps/v1/namespaces/spazio/deployments/spazio-process"
    assert (await kubectl.call("GET", process))["spec"]["replicas"] == 1
    made = {name for name in await everything(kubectl) - before if not name.startswith("secrets default/")}
    assert len(made) == len(rendered(**small))

    # An image, a setting, more replicas, and a component less.
    values = {
        "images": {"full": "spazio:0.1.1"},
        "settings": {"SPAZIO_LOG_LEVEL": "debug"},
        "components": {"kubernetes": {"enabled": False}},
    }
    await run(plane, "upgrade", str(CHART), values=values)
    wanted = rendered(**values)
    after = await kubectl.call("GET", process)
    assert after["spec"]["replicas"] == 2
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "spazio:0.1.1"
    for thing in wanted.values():
        there = await kubectl.call("GET", path_of(thing))
        assert there["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    left = {name for name in await everything(kubectl) - before if not name.startswith("secrets default/")}
    assert len(left) == len(wanted)
    assert not [name for name in left if "spazio-kubernetes" in name or "nodemetrics" in name]

    await run(plane, "uninstall")
    await finish_deletions(kubectl)
    assert await everything(kubectl) == before


def chart_before(folder: Path) -> Path:
    """Return the chart as it was before the last commit that changed it, written into a folder."""
    parts = [f"deploy/{name}" for name in ("helm", "kubernetes", "kustomize", "grafana", "prometheus")]
    log = subprocess.run(
        ["git", "log", "-2", "--format=%H", "--", *parts],
        cwd=DEPLOY.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    commits = log.stdout.split()
    if len(commits) < 2:
        pytest.skip("git has no chart before this one in its history of this checkout")
    archive = subprocess.run(
        ["git", "archive", commits[1], "deploy"], cwd=DEPLOY.parent, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / CHART.relative_to(DEPLOY.parent)


async def test_an_upgrade_from_the_chart_before_leaves_what_this_one_has_and_nothing_else(
    plane: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    before, earlier = await everything(kubectl), chart_before(tmp_path / "before")
    await run(plane, "install", str(earlier))
    await run(plane, "upgrade", str(CHART), "--reset-then-reuse-values")
    wanted, kept = rendered(), rendered_by(earlier, {})
    there = {name for name in await everything(kubectl) - before if not name.startswith("secrets default/")}
    assert len(there) == len(wanted)
    for thing in wanted.values():
        assert (await kubectl.call("GET", path_of(thing)))["kind"] == thing["kind"]
    # What holds data or names is the same as before: no volume is abandoned, and no address changes.
    for kind in ("StatefulSet", "PersistentVolumeClaim", "Service"):
        assert {key for key in kept if key[0] == kind} <= {key for key in wanted if key[0] == kind}
    await run(plane, "uninstall")
    await finish_deletions(kubectl)
    assert await everything(kubectl) == before


@pytest.mark.parametrize("profile", ["production"])
async def test_the_api_server_takes_every_object_of_a_profile(
    plane: ControlPlane, kubectl: Kubectl, profile: str
) -> None:
    await run(plane, "install", str(CHART), values={"profile": profile})
    for thing in rendered(profile=profile).values():
        there = await kubectl.call("GET", path_of(thing))
        assert there["kind"] == thing["kind"], json.dumps(there)
    nats = await kubectl.call("GET", "/apis/apps/v1/namespaces/spazio/statefulsets/spazio-nats")
    assert (nats["spec"]["replicas"], nats["spec"]["podManagementPolicy"]) == (3, "Parallel")
