"""What the governor may do on a real API server: evict pods, but none of the system, and run as root beside agents."""

import copy
from pathlib import Path
from typing import Any

import pytest

from kube import answer
from kube.api import Api
from schemas.messages.facts import PodFacts
from schemas.sections.measurement import Kube
from spazio.governing import evictor
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import documents, install, path_of, until
from tests.e2e.kubernetes.rights.rules import kubeconfig
from tests.e2e.kubernetes.rights.test_admission import create
from tests.unit.spazio.governing.test_governor import facts

pytestmark = pytest.mark.slow

MANIFEST, EVICT = "optional/govern/govern.yaml", "optional/rbac-evict.yaml"


@pytest.fixture
async def config(plane: ControlPlane, kubectl: Kubectl) -> Path:
    """Install the governor; the kubeconfig has its token."""
    await install(kubectl, "namespace.yaml", "admission.yaml", MANIFEST, EVICT)
    return await kubeconfig(plane, kubectl, "spazio-govern", "spazio-agents")


async def made(kubectl: Kubectl, space: str, name: str) -> PodFacts:
    """Create a pod, and return its facts."""
    pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    await kubectl.call("POST", f"/api/v1/namespaces/{space}/pods", pod)
    uid = (await kubectl.call("GET", f"/api/v1/namespaces/{space}/pods/{name}"))["metadata"]["uid"]
    return facts(uid).model_copy(update={"namespace": space, "name": name})


async def refused(config: Path, pod: PodFacts) -> str:
    """Ask for an eviction; returns why it is refused."""
    api = Api(Kube(config=config))
    try:
        await evictor.evict(api, pod)
    except answer.Trouble as trouble:
        return str(trouble)
    finally:
        await api.close()
    return ""


async def names(kubectl: Kubectl) -> set[str]:
    return {pod["metadata"]["name"] for pod in await kubectl.list("pods")}


async def test_the_governor_evicts_with_its_rule_and_not_without_and_only_the_pod_that_it_means(
    kubectl: Kubectl, config: Path
) -> None:
    pod = await made(kubectl, "default", "batch")
    assert await refused(config, pod.model_copy(update={"pod": "of-another-pod"})) != ""
    right = next(thing for thing in documents(EVICT) if thing["kind"] == "ClusterRoleBinding")
    await kubectl.call("DELETE", path_of(right))

    async def is_forbidden() -> bool:
        return "verb create on pods/eviction" in await refused(config, pod.model_copy(update={"pod": "none"}))

    await until(is_forbidden)
    assert "batch" in await names(kubectl)
    await install(kubectl, EVICT)

    async def is_evicted() -> bool:
        return await refused(config, pod) == ""

    await until(is_evicted)
    assert "batch" not in await names(kubectl)


async def test_no_pod_of_the_system_is_evicted(kubectl: Kubectl, config: Path) -> None:
    pod = await made(kubectl, "kube-system", "proxy")

    async def is_refused() -> bool:
        return "may evict no pod of the system" in await refused(config, pod)

    await until(is_refused)


async def test_its_pod_is_admitted_beside_agents_and_what_takes_the_node_is_not(
    plane: ControlPlane, kubectl: Kubectl, config: Path
) -> None:
    (daemon,) = (thing for thing in documents(MANIFEST) if thing["kind"] == "DaemonSet")
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(daemon["spec"]["template"])}
    pod["metadata"] |= {"name": "govern"}
    assert await create(plane, pod, "spazio-agents") == ""
    assert "restricted" in await create(plane, pod, "spazio")
    bad: list[dict[str, Any]] = [
        {"serviceAccountName": "spazio-none"},
        {"hostPID": True},
        {"hostNetwork": True},
        {"volumes": [*pod["spec"]["volumes"], {"name": "root", "hostPath": {"path": "/"}}]},
    ]

    async def is_enforced() -> bool:
        return "pods here" in await create(plane, pod | {"spec": pod["spec"] | bad[0]}, "spazio-agents")

    await until(is_enforced)
    for change in bad:
        assert "pods here" in await create(plane, pod | {"spec": pod["spec"] | change}, "spazio-agents"), change
    for own in ({"allowPrivilegeEscalation": True}, {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}):
        worse = copy.deepcopy(pod)
        worse["spec"]["containers"][0]["securityContext"] |= own
        assert " here " in await create(plane, worse, "spazio-agents"), own
    worse = copy.deepcopy(pod)
    for mount in worse["spec"]["containers"][0]["volumeMounts"]:
        mount.pop("readOnly", None)
    assert "pods here" in await create(plane, worse, "spazio-agents"), "/proc is not to be written"
